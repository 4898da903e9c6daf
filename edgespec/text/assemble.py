"""Tokens into text that can be shown: whole characters only, and nothing of a stop string or behind it."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

__all__ = ["TextAssembler"]


class TextAssembler:
    """Feed pieces of bytes; `feed` returns the text that is certain by now.

    A multi-byte character is held back until it is whole; bytes that can never become one are replaced. Text that
    could be the beginning of a stop string is held back until it is or is not one.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stop, self._held = tuple(stop), ""
        self.stopped = False

    def feed(self, piece: bytes) -> str:
        return self._release(self._held + self._decoder.decode(piece))

    def finish(self) -> str:
        """What was still held back, at the end of the generation."""
        text = self._release(self._held + self._decoder.decode(b"", final=True))
        rest, self._held = self._held, ""
        return text + rest

    def _release(self, text: str) -> str:
        if self.stopped:
            self._held = ""
            return ""
        found = [place for stop in self._stop if (place := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """The longest end of `text` that begins `stop`."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
