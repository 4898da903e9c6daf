"""Conversations on disk: what was said, and the keys and values of it, so that going on costs only what is new.

A conversation NAME is NAME.json (a checksum, then JSON) and files of keys and values, one for each model, that it names with
their own checksums. The JSON is published by rename, after the others are whole on disk: a kill at any moment leaves the old
state or the new.
Nothing in either is executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgespec.cache import data_folder
from edgespec.errors import ModelNotFound, RuntimeFault, UsageError
from edgespec.runtime import Runtime
from edgespec.text.template import Message
from edgespec.types import ModelHeader

__all__ = ["Conversation", "Shelf"]

_FORMAT = 2
_HALVES = ("target", "drafter")
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
        index, mark = self._index(name), secrets.token_hex(4)
        paths = [self._folder / f"{name}.{mark}.{half}.kv" for half in _HALVES]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            tokens = runtime.save_context(*paths)
            _publish(index, {
                "format": _FORMAT,
                "messages": [dict(message) for message in messages],
                "settings": dict(settings),
                "contexts": {
                    half: {"file": path.name, "sha256": _synced_digest(path), "made_with": maker}
                    for half, path, count, maker in zip(_HALVES, paths, tokens, _makers(runtime), strict=True) if count
                },
            })  # fmt: skip
        except OSError as error:
            raise RuntimeFault(f"the conversation cannot be saved ({error.strerror}): free some disk space") from error
        self._sweep(name, keep={path.name for path in paths})

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
        """Without the drafter's half it reads again what was said; without the target's nothing is reused."""
        if "target" not in found["contexts"]:
            return 0, ()
        (target, reason), (drafter, _) = (
            self._usable(found["contexts"].get(half), maker) for half, maker in zip(_HALVES, _makers(runtime), strict=True)
        )
        if target:
            if reused := runtime.load_context(target, drafter):
                return reused, ()
            reason = "the engine refuses it"
        return 0, (f"the saved context is not used ({reason}): what was said is read again",)

    def _usable(self, context: dict[str, Any] | None, maker: dict[str, Any] | None) -> tuple[Path | None, str]:
        """Where it is, else why it is of no use."""
        path = self._folder / Path(context["file"]).name if context else None
        if path is None or context is None or maker is None or context["made_with"] != maker:
            return None, "it was made with another model, engine or context"
        if not path.exists() or _digest(path) != context["sha256"]:
            return None, "its file is missing or damaged"
        return path, ""

    def remove(self, name: str) -> None:
        self._index(name).unlink(missing_ok=True)
        self._sweep(name)

    def _index(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a name for a conversation: letters, digits, dots and dashes, at most 64")
        return self._folder / f"{name}.json"

    def _sweep(self, name: str, keep: Collection[str] = ()) -> None:
        """Remove what no index names any more, also what a kill left behind."""
        for path in self._folder.glob(f"{name}.*"):
            rest = path.name.removeprefix(f"{name}.")
            if re.fullmatch(r"[0-9a-f]{8}\.\w+\.kv|json\.partial", rest) and path.name not in keep:
                path.unlink(missing_ok=True)


def _makers(runtime: Runtime) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Of the halves; keys and values are of use to the same weights, engine and kind of cache alone."""
    engine, small = {"engine": runtime.engine}, runtime.drafter_header
    target = engine | {"model": _fingerprint(runtime.header), "kv_type": runtime.plan.kv_type}
    return target, engine | {"model": _fingerprint(small)} if small else None


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
