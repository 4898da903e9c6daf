"""Conversations on disk: what was said, and the keys and values of it, so that going on costs only what is new.

A conversation NAME is NAME.json (a checksum, then JSON) and a file of keys and values that it names with its own checksum.
The JSON is published by rename, after the other is whole on disk: a kill at any moment leaves the old state or the new.
Nothing in either is executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgespec.cache import data_folder
from edgespec.errors import ModelNotFound, RuntimeFault, UsageError
from edgespec.runtime import Runtime
from edgespec.text.template import Message
from edgespec.types import ModelHeader

__all__ = ["Conversation", "Shelf"]

_FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Conversation:
    """`notes` say what could not be brought back; `reused` tokens need not be read again."""

    messages: tuple[Message, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    reused: int = 0
    notes: tuple[str, ...] = ()


class Shelf:
    """A folder of conversations, by default with the user's data."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or data_folder() / "conversations"

    def names(self) -> list[str]:
        return sorted(path.stem for path in self._folder.glob("*.json")) if self._folder.is_dir() else []

    def save(self, name: str, runtime: Runtime, messages: Sequence[Message], settings: Mapping[str, Any]) -> None:
        """Raises UsageError for a name that is none, RuntimeFault when it cannot be written; the old one then stays."""
        index = self._index(name)
        context = self._folder / f"{name}.{secrets.token_hex(4)}.kv"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            tokens = runtime.save_context(context)
            _publish(index, {
                "format": _FORMAT,
                "made_with": _maker(runtime),
                "messages": [dict(message) for message in messages],
                "settings": dict(settings),
                "context": {"file": context.name, "tokens": tokens, "sha256": _synced_digest(context)} if tokens else None,
            })  # fmt: skip
        except OSError as error:
            raise RuntimeFault(f"the conversation cannot be saved ({error.strerror}): free some disk space") from error
        self._sweep(name, keep=context.name)

    def load(self, name: str, runtime: Runtime) -> Conversation:
        """What was said, even where its context must be computed again. Raises UsageError, ModelNotFound for no such one."""
        index = self._index(name)
        if not index.exists():
            known = ", ".join(self.names()) or "none"
            raise ModelNotFound(f"there is no conversation {name!r}: saved are {known}")
        found = _read(index)
        if found is None:
            aside = index.with_suffix(".damaged")
            index.replace(aside)
            return Conversation((), notes=(f"the conversation {name!r} is damaged: it was put aside as {aside.name}",))
        reused, notes = self._restore(found, runtime)
        return Conversation(tuple(found["messages"]), found["settings"], reused, notes)

    def _restore(self, found: dict[str, Any], runtime: Runtime) -> tuple[int, tuple[str, ...]]:
        context = found["context"]
        if context is None:
            return 0, ()
        path = self._folder / Path(context["file"]).name
        if found["made_with"] != _maker(runtime):
            reason = "it was made with another model, engine or context"
        elif not path.exists() or _digest(path) != context["sha256"]:
            reason = "its file is missing or damaged"
        elif reused := runtime.load_context(path):
            return reused, ()
        else:
            reason = "the engine refuses it"
        return 0, (f"the saved context is not used ({reason}): what was said is read again",)

    def remove(self, name: str) -> None:
        self._index(name).unlink(missing_ok=True)
        self._sweep(name)

    def _index(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a name for a conversation: letters, digits, dots and dashes, at most 64")
        return self._folder / f"{name}.json"

    def _sweep(self, name: str, keep: str = "") -> None:
        """Remove what no index names any more, also what a kill left behind."""
        for path in self._folder.glob(f"{name}.*"):
            rest = path.name.removeprefix(f"{name}.")
            if re.fullmatch(r"[0-9a-f]{8}\.kv|json\.partial", rest) and path.name != keep:
                path.unlink(missing_ok=True)


def _maker(runtime: Runtime) -> dict[str, Any]:
    """Keys and values are of use to the same weights, engine and kind of cache alone."""
    return {"model": _fingerprint(runtime.header), "engine": runtime.engine, "kv_type": runtime.plan.kv_type}


def _fingerprint(header: ModelHeader) -> str:
    """Of a model's headers and sizes, wherever it lies."""
    digest = hashlib.sha256()
    for identity, size in zip(header.files, header.header_sizes, strict=True):
        with open(identity.path, "rb") as file:
            digest.update(identity.size.to_bytes(8, "little") + file.read(size))
    return digest.hexdigest()


def _publish(path: Path, content: dict[str, Any]) -> None:
    body = json.dumps(content, ensure_ascii=False).encode()
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path) -> dict[str, Any] | None:
    """None where it is damaged, or of another version."""
    digest, _, body = path.read_bytes().partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    found: dict[str, Any] = json.loads(body)
    return found if found.get("format") == _FORMAT else None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _synced_digest(path: Path) -> str:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return _digest(path)
