"""A model made of some of another's layers: its header, and a file without weights that an engine takes for it.

Skipping layers makes a drafter out of the target itself (Zhang et al., "Draft & Verify: Lossless Large Language Model
Acceleration via Self-Speculative Decoding", 2024). Engines build all layers that a header names; so here is a header that
names fewer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from edgespec.errors import ModelChanged
from edgespec.modelfile.gguf import RawHeader, Value, read_header
from edgespec.modelfile.quants import number_of
from edgespec.types import ModelHeader, TensorExtent

__all__ = ["original_name", "some_layers", "write_some_layers"]

_ARRAY, _U32 = 9, 4
_HEAD = struct.Struct("<4sIQQ")  # magic, version, tensors, fields
_ARRAY_HEAD = struct.Struct("<IIQ")  # type, type of the items, how many


def some_layers(header: ModelHeader, kept: Sequence[int]) -> ModelHeader:
    """The model of the layers `kept`, ascending, numbered anew; its weights lie where they are in `header`'s files."""
    layers = [
        replace(tensor, name=_renumbered(tensor.name, number))
        for number, layer in enumerate(kept)
        for tensor in header.layer_tensors(layer)
    ]
    return replace(
        header, layers=len(kept), kv_heads=tuple(header.kv_heads[layer] for layer in kept),
        tensors=(*header.core_tensors, *layers),
    )  # fmt: skip


def original_name(name: str, kept: Sequence[int]) -> str:
    """What a weight of `some_layers(header, kept)` is called in `header`."""
    return _renumbered(name, kept[int(name.split(".")[1])]) if name.startswith("blk.") else name


def write_some_layers(header: ModelHeader, kept: Sequence[int], path: Path) -> None:
    """Write the header of `some_layers(header, kept)` to `path`, with a hole as large as its weights behind it.

    Raises ModelChanged if the model's own header did.
    """
    raw = read_header(header.path)
    if raw.identity != header.files[0]:
        raise ModelChanged(f"{header.path} was changed since it was checked: load it again")
    with open(header.path, "rb") as file:
        source = file.read(raw.size)
    fields = [_string(name) + value for name, value in _fields(raw, source, header, kept)]
    infos, hole = _tensor_infos(some_layers(header, kept).tensors, raw.alignment)
    with path.open("wb") as out:
        out.write(_HEAD.pack(b"GGUF", 3, len(infos), len(fields)) + b"".join(fields) + b"".join(infos))
        out.truncate(_aligned(out.tell(), raw.alignment) + hole)


def _fields(raw: RawHeader, source: bytes, header: ModelHeader, kept: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    """Name and encoded value of every field; what is counted by layers counts the kept ones."""
    for name, place in raw.places.items():
        value, known = source[place.start : place.stop], raw.fields[name]
        if name.startswith("split."):
            continue  # this one is whole
        if name == f"{header.architecture}.block_count":
            value = struct.pack("<II", _U32, len(kept))
        elif _by_layer(name, known, header):
            value = _kept_items(value, kept)
        yield name, value


def _by_layer(name: str, value: Value, header: ModelHeader) -> bool:
    """Whether it is an array of one number per layer."""
    if not name.startswith(f"{header.architecture}.") or not isinstance(value, tuple):
        return False
    return len(value) == header.layers and not isinstance(value[0], bytes)


def _kept_items(array: bytes, kept: Sequence[int]) -> bytes:
    """Of an array of numbers, those of the kept layers."""
    _, kind, count = _ARRAY_HEAD.unpack_from(array)
    size = (len(array) - _ARRAY_HEAD.size) // count
    items = [array[_ARRAY_HEAD.size + layer * size :][:size] for layer in kept]
    return _ARRAY_HEAD.pack(_ARRAY, kind, len(items)) + b"".join(items)


def _tensor_infos(tensors: Sequence[TensorExtent], alignment: int) -> tuple[list[bytes], int]:
    """One after another, as engines expect; and the bytes that they take in all."""
    infos, offset = [], 0
    for tensor in tensors:
        shape = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        infos.append(_string(tensor.name) + shape + struct.pack("<IQ", number_of(tensor.kind), offset))
        offset = _aligned(offset + tensor.size, alignment)
    return infos, offset


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _renumbered(name: str, layer: int) -> str:
    return ".".join(["blk", str(layer), *name.split(".")[2:]])


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
