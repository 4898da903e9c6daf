"""Run a command under a kernel memory cap, with given files cold, and read the kernel's own peak.

Page cache counts. A disk can be slowed down to that of a phone by the block controller of cgroup v1 or v2.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgespec.errors import EdgespecError

__all__ = ["CannotCap", "Capped", "Group", "how", "make_cold", "run"]

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
BLKIO = Path("/sys/fs/cgroup/blkio")


class CannotCap(EdgespecError):
    """This machine does not allow a cap; the message says why."""


@dataclass(frozen=True)
class Capped:
    returncode: int
    stdout: str
    stderr: str
    peak: int  # bytes, page cache included
    failures: int  # how often the kernel had to reclaim at the cap


def how() -> str:
    """How a cap is enforced here. Raises CannotCap."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        raise CannotCap("setting a memory cap needs root: run as root, for example in a container")
    if (V1 / "memory.limit_in_bytes").exists():
        return "cgroup v1 memory.limit_in_bytes"
    controllers = V2 / "cgroup.subtree_control"
    if controllers.exists() and "memory" in controllers.read_text().split():
        return "cgroup v2 memory.max"
    raise CannotCap("no memory cgroup can be made here: run where one can, for example in a virtual machine")


def make_cold(*files: Path) -> None:
    """Drop the files from the page cache."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


class Group:
    """A cgroup of `cap` bytes; `command` wraps a command so that it runs in there."""

    def __init__(self, folder: Path, blkio: Path | None, old: bool) -> None:
        self._folder, self._blkio, self._old = folder, blkio, old

    def command(self, command: Sequence[str]) -> list[str]:
        files = [folder / "cgroup.procs" for folder in (self._folder, self._blkio) if folder]
        entry = " && ".join([*(f'echo $$ > "{file}"' for file in files), 'exec "$@"'])
        return ["bash", "-c", entry, "capped", *command]

    @property
    def usage(self) -> int:
        """Bytes in use now."""
        return self._number("memory.usage_in_bytes" if self._old else "memory.current")

    @property
    def peak(self) -> int:
        return self._number("memory.max_usage_in_bytes" if self._old else "memory.peak")

    @property
    def failures(self) -> int:
        if self._old:
            return self._number("memory.failcnt")
        events = dict(line.split() for line in (self._folder / "memory.events").read_text().splitlines())
        return int(events["max"])

    def _number(self, name: str) -> int:
        return int((self._folder / name).read_text())


@contextmanager
def group(cap: int, *, disk: Path | None = None, bytes_per_second: int | None = None) -> Iterator[Group]:
    """A fresh cgroup of `cap` bytes, gone at the end; reads from the disk of file `disk` throttled if asked. Raises CannotCap."""
    old, name = "v1" in how(), f"edgespec-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder = (V1 if old else V2) / name
    folder.mkdir()
    blkio: Path | None = None
    try:
        (folder / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(cap))
        if disk and bytes_per_second:
            blkio = _throttle(folder, name, disk, bytes_per_second, old)
        yield Group(folder, blkio, old)
    finally:
        for made in (folder, blkio):
            if made:
                made.rmdir()


def _throttle(folder: Path, name: str, disk: Path, bytes_per_second: int, old: bool) -> Path | None:
    device = os.stat(disk).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        if not old:
            (folder / "io.max").write_text(f"{number} rbps={bytes_per_second}")
            return None
        blkio = BLKIO / name
        blkio.mkdir()
        (blkio / "blkio.throttle.read_bps_device").write_text(f"{number} {bytes_per_second}")
        return blkio
    except OSError as error:
        raise CannotCap(f"this disk cannot be throttled ({error.strerror}): leave --disk out") from error


def run(command: Sequence[str], cap: int, *, timeout: float = 900) -> Capped:
    """Run `command` in a fresh cgroup of `cap` bytes. Raises CannotCap, also when the command did not get in."""
    with group(cap) as made:
        done = subprocess.run(made.command(command), capture_output=True, text=True, timeout=timeout)
        if made.peak < 1 << 20:
            raise CannotCap("the command did not enter its cgroup: see whether cgroup.procs can be written")
        return Capped(done.returncode, done.stdout, done.stderr, made.peak, made.failures)
