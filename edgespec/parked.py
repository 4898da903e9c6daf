"""Conversations that gave way to another: their keys and values in files, so that whoever goes on pays for what is new."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from edgespec.cache import cache_folder
from edgespec.errors import EngineError
from edgespec.speculation.tree import shared_prefix

__all__ = ["Parking"]

_log = logging.getLogger(__name__)
_WORTHWHILE = 64  # tokens that are not read again, for a file to be written or read
_ROOM = 1 << 30  # bytes of disk that are left to others


class Portable(Protocol):
    """What of an engine's session is needed here."""

    def save(self, path: str, tokens: Sequence[int]) -> None: ...

    def load(self, path: str) -> list[int] | None: ...


@dataclass(frozen=True)
class _Parked:
    tokens: tuple[int, ...]
    path: Path


class Parking:
    """At most `most` conversations; the one that was not used for longest makes room. The files end with the process."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parked: list[_Parked] = []  # the oldest first
        self._number = 0
        self._folder: Path | None = None

    def swap(self, session: Portable, history: list[int], prompt: Sequence[int]) -> list[int]:
        """What `session` has afterwards: of `history`, which it has, and all that is parked, what `prompt` goes on from best.

        What of `history` would be lost to `prompt` is parked.
        """
        here = shared_prefix(history, prompt)
        best = max(self._parked, key=lambda parked: shared_prefix(parked.tokens, prompt), default=None)
        if best is not None and shared_prefix(best.tokens, prompt) < here + _WORTHWHILE:
            best = None
        if best:
            self._parked.remove(best)  # it must not be what makes room
        if len(history) - here >= _WORTHWHILE:
            self._park(session, tuple(history))
        return self._fetch(session, best) if best else history

    def _fetch(self, session: Portable, parked: _Parked) -> list[int]:
        found = session.load(str(parked.path))
        parked.path.unlink(missing_ok=True)
        if found is None:
            _log.warning("a parked conversation could not be read back: it is read again from its text")
        return found or []

    def _park(self, session: Portable, tokens: tuple[int, ...]) -> None:
        if not self._most or any(shared_prefix(parked.tokens, tokens) > len(tokens) - _WORTHWHILE for parked in self._parked):
            return
        for parked in [one for one in self._parked if tokens[: len(one.tokens)] == one.tokens]:  # it has grown since
            self._forget(parked)
        while len(self._parked) >= self._most:
            self._forget(self._parked[0])
        self._folder = self._folder or self._open()
        if shutil.disk_usage(self._folder).free < _ROOM:
            _log.warning("less than 1 GiB of disk is free: conversations that give way are read again from their text")
            return
        self._number += 1
        path = self._folder / f"{self._number}.kv"
        try:
            session.save(str(path), tokens)
        except EngineError as error:
            _log.warning("a conversation that gives way is read again from its text: %s", error)
            path.unlink(missing_ok=True)
            return
        self._parked.append(_Parked(tokens, path))

    def _forget(self, parked: _Parked) -> None:
        self._parked.remove(parked)
        parked.path.unlink(missing_ok=True)

    def _open(self) -> Path:
        """A folder that this process removes, and a later one if this is killed."""
        for left in _left_behind():
            shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"parked-{os.getpid()}-", dir=cache_folder()))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder


def _left_behind() -> Iterator[Path]:
    for folder in cache_folder().glob("parked-*-*"):
        process = folder.name.split("-")[1]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            yield folder
