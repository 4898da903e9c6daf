"""Loading a model without reading it: the engine is given a stand-in of the file, with holes where the weights are.

The stand-in holds exactly the header bytes that were validated, so the engine never opens a file that could change
under it, and nobody else can truncate the mapping it keeps. The engine populates its whole mapping, which would cost as
much memory and about as much time as reading: so as soon as the mapping shows up the file is cut off behind the header,
whereupon populating stops at the first page beyond its end. Its length is restored before anything looks at a weight.
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgespec.cache import cache_folder
from edgespec.errors import ModelChanged
from edgespec.modelfile.header import unchanged
from edgespec.types import ModelHeader

__all__ = ["mappings", "seal", "stand_in", "unpopulated"]

_GOVERN_EVERY = 0.001


@contextmanager
def stand_in(header: ModelHeader) -> Iterator[list[str]]:
    """Paths of the stand-in's files, shard names kept. The files are gone when the block ends; mappings of them live on.

    Raises ModelChanged if the model did.
    """
    with tempfile.TemporaryDirectory(prefix="edgespec-load-", dir=cache_folder()) as folder:
        yield [str(_copy_header(header, number, Path(folder))) for number in range(len(header.files))]


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
def unpopulated(paths: list[str], header: ModelHeader) -> Iterator[None]:
    """While the block loads the stand-ins, keep the engine from populating them; their holes are back when it ends."""
    done = threading.Event()
    thread = threading.Thread(target=_cut_once_mapped, args=(paths, header, done), name="edgespec-governor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        for path, identity in zip(paths, header.files, strict=True):
            os.truncate(path, identity.size)


def _cut_once_mapped(paths: list[str], header: ModelHeader, done: threading.Event) -> None:
    waiting = set(range(len(paths)))
    while waiting and not done.wait(_GOVERN_EVERY):
        for number in {region[0] for region in mappings(paths)} & waiting:
            os.truncate(paths[number], _kept(header, number))
            waiting.remove(number)


def _kept(header: ModelHeader, number: int) -> int:
    """The header's own bytes, up to the end of their last page."""
    return min(header.files[number].size, -(-header.header_sizes[number] // 4096) * 4096)


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
