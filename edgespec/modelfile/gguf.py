"""Reader of one GGUF file's header, built for files nobody vouches for. It reads no weights.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little endian).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from edgespec.errors import ModelInvalid, ModelNotFound
from edgespec.modelfile.cursor import Cursor
from edgespec.modelfile.quants import TYPES
from edgespec.types import FileIdentity, TensorExtent

__all__ = ["RawHeader", "Value", "read_header"]

Value = int | float | bool | bytes | tuple["int | float | bool | bytes", ...]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_ENTRIES = 1 << 16
_STRANGERS = {
    b"vers": "it is a Git-LFS pointer, not the model: run `git lfs pull`",
    b"<!DO": "it is a web page, not a model: download the file itself",
    b"<htm": "it is a web page, not a model: download the file itself",
    b"PK\x03\x04": "it is a zip archive: convert the model to GGUF",
}


@dataclass(frozen=True)
class RawHeader:
    identity: FileIdentity
    fields: dict[str, Value]
    tensors: tuple[TensorExtent, ...]
    size: int  # bytes before the first weight
    places: dict[str, range]  # where each field's value lies in the file, its type first
    alignment: int  # of the weights


def read_header(path: str | os.PathLike[str], number: int = 0) -> RawHeader:
    """Parse and check the header of file `number` of a model.

    Raises ModelNotFound or ModelInvalid, in time and memory bounded by the header's own size.
    """
    try:
        with Path(path).open("rb") as stream:
            stat = os.fstat(stream.fileno())
            if not os.path.isfile(path):
                raise ModelInvalid(f"{path}: not a regular file: name the .gguf file")
            identity = FileIdentity.of(os.path.abspath(path), stat)
            return _parse(Cursor(stream, stat.st_size, os.path.basename(path)), identity, number)
    except FileNotFoundError:
        raise ModelNotFound(f"{path}: no such file: check --target and --drafter") from None
    except OSError as error:
        raise ModelNotFound(f"{path}: cannot be read: {error.strerror}") from error


def _parse(cursor: Cursor, identity: FileIdentity, number: int) -> RawHeader:
    if identity.size == 0:
        raise cursor.fail("file is empty")
    magic = cursor.take(4)
    if magic != b"GGUF":
        raise cursor.fail(_STRANGERS.get(magic, "not a GGUF file, the magic number is wrong"))
    version = cursor.u32()
    if version not in (2, 3):
        raise cursor.fail(f"GGUF version {version} is not supported, only 2 and 3 are")
    tensor_count = cursor.count(24, "tensors", _MAX_ENTRIES)
    field_count = cursor.count(12, "fields", _MAX_ENTRIES)
    fields: dict[str, Value] = {}
    places: dict[str, range] = {}
    for _ in range(field_count):
        name = _name(cursor)
        if name in fields:
            raise cursor.fail(f"field {name!r} appears twice")
        begin = cursor.position
        fields[name] = _value(cursor, cursor.u32())
        places[name] = range(begin, cursor.position)
    alignment = fields.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 20:
        raise cursor.fail(f"alignment {alignment!r} is not a power of two up to 1 MiB")
    infos = [_tensor_info(cursor, alignment) for _ in range(tensor_count)]
    start = -(-cursor.position // alignment) * alignment
    tensors = tuple(TensorExtent(name, shape, kind, number, start + offset, size) for name, shape, kind, offset, size in infos)
    _check_extents(cursor, tensors, identity.size)
    return RawHeader(identity, fields, tensors, start, places, alignment)


def _name(cursor: Cursor) -> str:
    try:
        return cursor.text().decode("utf-8")
    except UnicodeDecodeError:
        raise cursor.fail("a name is not valid UTF-8") from None


def _value(cursor: Cursor, kind: int) -> Value:
    if kind in _SCALARS:
        return cursor.number(_SCALARS[kind])
    if kind == _STRING:
        return cursor.text()
    if kind != _ARRAY:
        raise cursor.fail(f"unknown field type {kind}")
    item = cursor.u32()
    if item == _STRING:
        return tuple(cursor.text() for _ in range(cursor.count(8, "strings")))
    if item not in _SCALARS:
        raise cursor.fail(f"arrays of type {item} (nested arrays included) are not allowed")
    return cursor.numbers(_SCALARS[item], cursor.count(1, "array items"))


def _tensor_info(cursor: Cursor, alignment: int) -> tuple[str, tuple[int, ...], str, int, int]:
    name = _name(cursor)
    dimensions = cursor.u32()
    if not 1 <= dimensions <= 4:
        raise cursor.fail(f"tensor {name!r} has {dimensions} dimensions")
    shape = tuple(int(cursor.number("Q")) for _ in range(dimensions))
    kind = cursor.u32()
    offset = int(cursor.number("Q"))
    if kind not in TYPES:
        raise cursor.fail(f"tensor {name!r} has unknown type {kind}")
    label, block, block_bytes = TYPES[kind]
    elements = 1
    for extent in shape:
        elements *= extent
    if not 0 < elements < 1 << 50 or shape[0] % block:
        raise cursor.fail(f"tensor {name!r} has impossible dimensions {shape} for {label}")
    if offset % alignment:
        raise cursor.fail(f"tensor {name!r} is not aligned")
    return name, shape, label, offset, elements // block * block_bytes


def _check_extents(cursor: Cursor, tensors: tuple[TensorExtent, ...], file_size: int) -> None:
    """Every tensor inside the file, none overlapping another, no name twice."""
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise cursor.fail("two tensors share a name")
    end = 0
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        if tensor.offset + tensor.size > file_size:
            raise cursor.fail(f"tensor {tensor.name!r} ends outside the file: the download is incomplete")
        if tensor.offset < end:
            raise cursor.fail(f"tensor {tensor.name!r} overlaps another")
        end = tensor.offset + tensor.size
