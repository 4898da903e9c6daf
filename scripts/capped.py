"""Run a command under a kernel memory cap, with given files cold or cached, and read the kernel's own peak."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class CannotCap(Exception):
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
    if os.geteuid() != 0:
        raise CannotCap("setting a memory cap needs root")
    if (V1 / "memory.limit_in_bytes").exists():
        return "cgroup v1 memory.limit_in_bytes"
    if "memory" in (V2 / "cgroup.subtree_control").read_text().split() if (V2 / "cgroup.subtree_control").exists() else False:
        return "cgroup v2 memory.max"
    raise CannotCap("no memory cgroup can be made here")


def make_cold(*files: Path) -> None:
    """Drop the files from the page cache."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def run(command: Sequence[str], cap: int, *, timeout: float = 900) -> Capped:
    """Run `command` in a fresh cgroup of `cap` bytes. Raises CannotCap, or RuntimeError if the cap did not take."""
    old = "v1" in how()
    group = (V1 if old else V2) / f"edgespec-{os.getpid()}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(cap))
        entry = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
        done = subprocess.run(["bash", "-c", entry, "capped", *command], capture_output=True, text=True, timeout=timeout)
        peak = int((group / ("memory.max_usage_in_bytes" if old else "memory.peak")).read_text())
        if peak < 1 << 20:
            raise RuntimeError("the command did not enter its cgroup")
        return Capped(done.returncode, done.stdout, done.stderr, peak, _failures(group, old))
    finally:
        group.rmdir()


def _failures(group: Path, old: bool) -> int:
    if old:
        return int((group / "memory.failcnt").read_text())
    events = dict(line.split() for line in (group / "memory.events").read_text().splitlines())
    return int(events["max"])
