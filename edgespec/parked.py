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
from typing import Protocol, TypeGuard, runtime_checkable

import psutil

from edgespec.cache import cache_folder
from edgespec.engines.base import Session
from edgespec.errors import EngineError
from edgespec.speculation.tree import shared_prefix

__all__ = ["Parking"]

_log = logging.getLogger(__name__)
_WORTHWHILE = 64  # tokens that are not read again, for a file to be written or read
_ROOM = 1 << 30  # bytes of disk that are left to others


@runtime_checkable
class Portable(Session, Protocol):
    """A session whose keys and values can be in a file: `portable`, unless more is needed than these."""

    @property
    def portable(self) -> bool: ...

    def save(self, path: str, tokens: Sequence[int]) -> int: ...

    def load(self, path: str) -> list[int] | None: ...


@dataclass(frozen=True)
class _Parked:
    """`paths` has a place for each session; None where it had nothing, or nothing that can be carried."""

    tokens: tuple[int, ...]
    paths: tuple[Path | None, ...]


class Parking:
    """At most `most` conversations; the one that was not used for longest makes room. The files end with the process."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parked: list[_Parked] = []  # the oldest first
        self._number = 0
        self._folder: Path | None = None

    def swap(self, sessions: Sequence[Session], history: Sequence[int], prompt: Sequence[int]) -> None:
        """Leave in every session the longest beginning of `prompt` that it has, or has parked; the target's is the first.

        They have beginnings of `history`. What of it would be lost to the prompt is parked.
        """
        here = shared_prefix(history, prompt)
        best = max(self._parked, key=lambda parked: shared_prefix(parked.tokens, prompt), default=None)
        if best is not None and shared_prefix(best.tokens, prompt) < here + _WORTHWHILE:
            best = None
        if best:
            self._parked.remove(best)  # it must not be what makes room
        if len(history) - here >= _WORTHWHILE:
            self._park(sessions, tuple(history))
        for place, session in enumerate(sessions):
            path = best.paths[place] if best else None
            has = history if path is None else self._fetch(session, path)
            session.rewind(min(session.length, shared_prefix(has, prompt)))

    def _fetch(self, session: Session, path: Path) -> Sequence[int]:
        assert isinstance(session, Portable)  # it wrote the file
        found = session.load(str(path))
        path.unlink(missing_ok=True)
        if found is None:
            _log.warning("a parked conversation could not be read back: it is read again from its text")
        return found or ()

    def _park(self, sessions: Sequence[Session], tokens: tuple[int, ...]) -> None:
        if not (self._most and _portable(sessions[0])) or self._has(tokens):
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
        paths = [self._write(session, tokens, f"{self._number}.{place}.kv") for place, session in enumerate(sessions)]
        if any(paths):
            self._parked.append(_Parked(tokens, tuple(paths)))

    def _has(self, tokens: tuple[int, ...]) -> bool:
        return any(shared_prefix(parked.tokens, tokens) > len(tokens) - _WORTHWHILE for parked in self._parked)

    def _write(self, session: Session, tokens: tuple[int, ...], name: str) -> Path | None:
        if not _portable(session):
            return None
        assert self._folder is not None
        path = self._folder / name
        try:
            if session.save(str(path), tokens):
                return path
        except EngineError as error:
            _log.warning("a conversation that gives way is read again from its text: %s", error)
            path.unlink(missing_ok=True)
        return None

    def _forget(self, parked: _Parked) -> None:
        self._parked.remove(parked)
        for path in filter(None, parked.paths):
            path.unlink(missing_ok=True)

    def _open(self) -> Path:
        """A folder that this process removes, and a later one if this is killed."""
        for left in _left_behind():
            shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"parked-{os.getpid()}-", dir=cache_folder()))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder


def _portable(session: Session) -> TypeGuard[Portable]:
    return isinstance(session, Portable) and session.portable


def _left_behind() -> Iterator[Path]:
    for folder in cache_folder().glob("parked-*-*"):
        process = folder.name.split("-")[1]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            yield folder
