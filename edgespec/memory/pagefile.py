"""A copy of a model's weights in the layout the engine's fast kernels want, made once and paged instead of the model.

The layout depends on the CPU and the engine, so a page file is named after the model's files, both of these, and nothing
else; one that does not fit is never used. Format: magic, the index's length and CRC-32, the index as JSON, and from the
next page boundary on the tensors, each on pages of its own, with a CRC-32 each. Published by rename when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from edgespec.errors import ModelInvalid, PagingError
from edgespec.memory.layout import PAGE
from edgespec.types import FileIdentity, ModelHeader, TensorExtent

__all__ = ["PageFile", "find", "intact", "name_of", "stored", "write"]

_MAGIC = b"EDGESPECPAGES1\0\0"
_HEAD = struct.Struct("<16sQI")  # magic, bytes of the index, its checksum
_MOST_INDEX = 64 << 20
_SUFFIX = ".pages"
_log = logging.getLogger(__name__)
Entry = tuple[TensorExtent, bool, memoryview]  # a tensor of the model, whether it was repacked, and its bytes now


@dataclass(frozen=True)
class PageFile:
    """`tensors` lie in the file `identity`; `repacked` names those whose bytes are not as in the model."""

    identity: FileIdentity
    model: str
    tensors: tuple[TensorExtent, ...]
    checksums: tuple[int, ...]
    repacked: frozenset[str]

    def weights(self, header: ModelHeader) -> ModelHeader:
        """The model as `header`, its weights to be read from here."""
        return replace(header, files=(self.identity,), header_sizes=(0,), tensors=self.tensors)


def name_of(header: ModelHeader, engine: str, cpu: str) -> str:
    """File name for this model under this engine on this CPU."""
    files = [(file.path, file.size, file.mtime_ns, file.inode) for file in header.files]
    digest = hashlib.sha256(json.dumps([files, engine, cpu]).encode()).hexdigest()
    stem = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in Path(header.path).stem)
    return f"{stem[:60]}-{digest[:16]}{_SUFFIX}"


def find(folder: Path, name: str, header: ModelHeader) -> PageFile | None:
    """The page file of that name if it is whole and has all of the model's weights."""
    path = folder / name
    if not path.exists():
        return None
    try:
        found = _read(path)
    except ModelInvalid as error:
        _log.warning("%s: it will be written again", error)
        return None
    expected = [(tensor.name, tensor.shape, tensor.kind) for tensor in header.tensors]
    return found if [(tensor.name, tensor.shape, tensor.kind) for tensor in found.tensors] == expected else None


def stored(folder: Path) -> list[Path]:
    """Page files and what interrupted writing left behind."""
    return sorted(path for path in folder.glob("*") if path.suffix in (_SUFFIX, ".partial")) if folder.is_dir() else []


def write(folder: Path, name: str, header: ModelHeader, entries: Iterable[Entry]) -> None:
    """Write `entries`, the header's tensors in order, one at a time. Raises PagingError when there is no room for it."""
    needed = sum(tensor.size + PAGE for tensor in header.tensors) + _index_room(header)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise PagingError(
                f"{folder} has {free >> 20} of {needed >> 20} MiB that a page file takes: free some, or --pages off"
            )
        partial = folder / f"{name}.{os.getpid()}.partial"
        try:
            _write(partial, header, entries)
            partial.replace(folder / name)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise PagingError(f"the page file cannot be written ({error.strerror}): use --pages off") from error


def intact(path: Path) -> bool:
    """Whether every tensor's bytes still have their checksum; reads the whole file."""
    try:
        found = _read(path)
    except ModelInvalid:
        return False
    with path.open("rb") as file:
        for tensor, wanted in zip(found.tensors, found.checksums, strict=True):
            file.seek(tensor.offset)
            if zlib.crc32(file.read(tensor.size)) != wanted:
                return False
    return True


def _index_room(header: ModelHeader) -> int:
    """Bytes before the first tensor: enough for any index of this model."""
    longest = sum(len(tensor.name) + 160 for tensor in header.tensors) + len(header.path) + 1024
    return -(-(_HEAD.size + longest) // PAGE) * PAGE


def _write(path: Path, header: ModelHeader, entries: Iterable[Entry]) -> None:
    with path.open("xb") as file:
        place = _index_room(header)
        rows = []
        for tensor, repacked, data in entries:
            file.seek(place)
            file.write(data)
            rows.append([tensor.name, list(tensor.shape), tensor.kind, place, len(data), zlib.crc32(data), repacked])
            place = -(-(place + len(data)) // PAGE) * PAGE
        file.truncate(place)
        index = json.dumps({"model": header.path, "tensors": rows}).encode()
        file.seek(0)
        file.write(_HEAD.pack(_MAGIC, len(index), zlib.crc32(index)) + index)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(path: Path) -> PageFile:
    """The index, checked. Raises ModelInvalid."""
    try:
        with path.open("rb") as file:
            identity = FileIdentity.of(str(path), os.fstat(file.fileno()))
            head = file.read(_HEAD.size)
            magic, size, checksum = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 0, 0)
            index = file.read(size) if magic == _MAGIC and size <= _MOST_INDEX else b""
        if not index or zlib.crc32(index) != checksum:
            raise ModelInvalid(f"{path.name} is no whole page file")
        return _parsed(identity, json.loads(index))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelInvalid(f"{path.name} cannot be read as a page file ({error})") from error


def _parsed(identity: FileIdentity, index: dict[str, object]) -> PageFile:
    rows = list(_rows(index["tensors"]))
    tensors = tuple(TensorExtent(name, tuple(shape), kind, 0, place, size) for name, shape, kind, place, size, _, _ in rows)
    if any(tensor.offset % PAGE or tensor.offset + tensor.size > identity.size for tensor in tensors):
        raise ModelInvalid(f"{identity.path} is cut off")
    repacked = frozenset(row[0] for row in rows if row[6])
    return PageFile(identity, str(index["model"]), tensors, tuple(row[5] for row in rows), repacked)


def _rows(rows: object) -> Iterator[tuple[str, list[int], str, int, int, int, bool]]:
    for row in rows if isinstance(rows, list) else []:
        name, shape, kind, place, size, checksum, repacked = row
        yield str(name), [int(side) for side in shape], str(kind), int(place), int(size), int(checksum), bool(repacked)
