"""A reader that a hostile header cannot make allocate, loop or recurse beyond what the file itself holds."""

from __future__ import annotations

import struct
from typing import BinaryIO

from edgespec.errors import ModelInvalid

__all__ = ["Cursor"]

MAX_HEADER = 1 << 28  # the largest real headers (256k-token vocabularies) are some 20 MB


class Cursor:
    """Little-endian values from `stream`, which is `size` bytes long; every length is checked before it is used."""

    def __init__(self, stream: BinaryIO, size: int, name: str) -> None:
        self._stream, self._limit, self._name = stream, min(size, MAX_HEADER), name
        self.position = 0

    @property
    def remaining(self) -> int:
        return self._limit - self.position

    def fail(self, reason: str) -> ModelInvalid:
        return ModelInvalid(f"{self._name}: {reason} (at byte {self.position}): download or convert the model again")

    def take(self, count: int) -> bytes:
        if count > self.remaining:
            raise self.fail(f"header ends early, {count} bytes wanted and {self.remaining} left")
        data = self._stream.read(count)
        if len(data) != count:
            raise self.fail("file is shorter than it was")
        self.position += count
        return data

    def number(self, code: str) -> int | float | bool:
        value: int | float | bool = struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]
        return value

    def u32(self) -> int:
        return int(self.number("I"))

    def count(self, item_bytes: int, what: str, most: int = 1 << 32) -> int:
        """A 64-bit count of items of at least `item_bytes` each, refused if they cannot fit in what is left."""
        value = int(self.number("Q"))
        if value > most or value * item_bytes > self.remaining:
            raise self.fail(f"absurd number of {what}: {value}")
        return value

    def text(self) -> bytes:
        return self.take(self.count(1, "characters"))

    def numbers(self, code: str, count: int) -> tuple[int | float | bool, ...]:
        return struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(code)))
