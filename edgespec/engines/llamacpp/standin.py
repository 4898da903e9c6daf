"""Loading a model without reading it: the engine is given a stand-in of the file, with holes where the weights are.

The stand-in holds exactly the header bytes that were validated, so the engine never opens a file that could change
under it, and nobody else can truncate the mapping it keeps. The engine populates the mapping; a governor punches
the populated pages out again as they appear, so that loading stays inside the budget.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from edgespec.cache import cache_folder
from edgespec.errors import ModelChanged
from edgespec.modelfile.header import unchanged
from edgespec.types import ModelHeader

__all__ = ["mappings", "seal", "stand_in"]

_log = logging.getLogger(__name__)
_PUNCH_AND_KEEP_SIZE = 3
_GOVERN_EVERY = 0.002


@contextmanager
def stand_in(header: ModelHeader, allowed: int) -> Iterator[list[str]]:
    """Paths of the stand-in's files, shard names kept; while the block runs, its pages in memory stay below `allowed`.

    The files are gone when the block ends; mappings of them live on. Raises ModelChanged if the model did.
    """
    with tempfile.TemporaryDirectory(prefix="edgespec-load-", dir=cache_folder()) as folder:
        paths = [_copy_header(header, number, Path(folder)) for number in range(len(header.files))]
        with _governed(paths, header.header_sizes, allowed):
            yield [str(path) for path in paths]


def _copy_header(header: ModelHeader, number: int, folder: Path) -> Path:
    identity = header.files[number]
    path = folder / os.path.basename(identity.path)
    with open(identity.path, "rb") as source, path.open("wb") as copy:
        copy.write(source.read(header.header_sizes[number]))
        copy.truncate(identity.size)
    if not unchanged(identity):
        raise ModelChanged(f"{identity.path} was changed while loading: load it again")
    return path


@contextmanager
def _governed(paths: list[Path], keep: tuple[int, ...], allowed: int) -> Iterator[None]:
    done = threading.Event()
    thread = threading.Thread(target=_govern, args=(paths, keep, allowed, done), name="edgespec-governor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        for path, start in zip(paths, keep, strict=True):
            _punch(path, start)


def _govern(paths: list[Path], keep: tuple[int, ...], allowed: int, done: threading.Event) -> None:
    process = psutil.Process()
    base = process.memory_info().rss
    while not done.wait(_GOVERN_EVERY):
        if process.memory_info().rss - base > allowed:
            for path, start in zip(paths, keep, strict=True):
                _punch(path, start)


def _punch(path: Path, start: int) -> None:
    """Free the pages of `path` behind `start`, mapped or not; they hold zeros anyway."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    start = -(-start // 4096) * 4096
    with path.open("r+b") as file:
        length = os.fstat(file.fileno()).st_size - start
        if length > 0 and libc.fallocate(file.fileno(), _PUNCH_AND_KEEP_SIZE, start, length):
            _log.debug("cannot punch a hole into %s: %s", path, os.strerror(ctypes.get_errno()))


def mappings(paths: list[str]) -> list[tuple[int, int, int, int]]:
    """Where this process maps the stand-ins: (file number, first address, end address, offset in the file)."""
    numbers = {os.path.realpath(path): number for number, path in enumerate(paths)}
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ \d+\s+(.*)", line)
        if match and match[4] in numbers:
            found.append((numbers[match[4]], int(match[1], 16), int(match[2], 16), int(match[3], 16)))
    return found


def seal(regions: list[tuple[int, int, int, int]]) -> None:
    """Forbid all access to the mappings: a pointer that was missed must fault, not read zeros as weights."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for _, start, end, _ in regions:
        if libc.mprotect(start, end - start, 0):
            raise OSError(ctypes.get_errno(), "mprotect failed")
