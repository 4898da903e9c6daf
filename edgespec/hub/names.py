"""Names of models: those of the catalog, `user/repo[:quant]`, and files on disk."""

from __future__ import annotations

import fnmatch
import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from edgespec.errors import ModelNotFound, UsageError
from edgespec.shipped import shipped

__all__ = ["DEFAULT_QUANT", "Entry", "Source", "catalog", "chosen_files", "entry_named", "grouped", "is_name", "source_named"]

DEFAULT_QUANT = "Q4_K_M"
_REPO = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?::(?P<quant>[\w.-]{1,32}))?")
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*:[a-z0-9.]+")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True)
class Source:
    """Where a model is: a repository, and a pattern that its file's name matches, letter case aside."""

    repo: str
    pattern: str


@dataclass(frozen=True)
class Entry:
    """A model of the catalog.

    `base` is the model that the files were made from, `drafter` the name of another entry, or None where none has the
    vocabulary, `checked` the day on which the entry was last compared with what others publish (docs/catalog.md).
    """

    name: str
    source: Source
    base: str
    licence: str
    context: int
    drafter: str | None
    checked: date


@functools.cache
def catalog() -> Mapping[str, Entry]:
    """What `models/catalog.json` lists, by name."""
    listed = json.loads(shipped("catalog.json").read_text())["models"]
    return {name: _entry(name, item) for name, item in listed.items()}


def _entry(name: str, item: dict[str, Any]) -> Entry:
    return Entry(
        name,
        Source(item["repo"], item["file"]),
        base=item["base"],
        licence=item["licence"],
        context=item["context"],
        drafter=item["drafter"],
        checked=date.fromisoformat(item["checked"]),
    )


def is_name(text: str) -> bool:
    """Whether this names a model of the catalog or a repository, and no file that is here."""
    return not Path(text).exists() and not text.endswith(".gguf") and bool(_NAME.fullmatch(text) or _REPO.fullmatch(text))


def entry_named(name: str) -> Entry:
    """Raises ModelNotFound, with the names there are."""
    known = catalog()
    if name not in known:
        raise ModelNotFound(f"the catalog has no {name!r}: choose from {', '.join(sorted(known))}, or give user/repo[:quant]")
    return known[name]


def source_named(text: str) -> Source:
    """Of a repository with a quant, Q4_K_M where none is given. Raises UsageError."""
    match = _REPO.fullmatch(text)
    if not match or ".." in text:
        raise UsageError(f"{text!r} is no model: give a name of the catalog, user/repo[:quant], or a file")
    return Source(match["repo"], f"*{match['quant'] or DEFAULT_QUANT}*.gguf")


def grouped(names: Sequence[str]) -> list[list[str]]:
    """The shards of each model together, in order."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(_SHARD.sub("", name), []).append(name)
    return list(groups.values())


def chosen_files(names: Sequence[str], source: Source) -> list[str]:
    """Of a repository's files those of the model, in the order of their shards. Raises ModelNotFound."""
    pattern = source.pattern.lower()
    safe = [name for name in names if ".." not in name.split("/") and not name.startswith("/") and "\\" not in name]
    found = sorted(name for name in safe if fnmatch.fnmatchcase(name.lower(), pattern) and "mmproj" not in name.lower())
    groups = grouped(found)
    if not groups:
        kinds = ", ".join(sorted(name for name in safe if name.endswith(".gguf"))[:12]) or "no GGUF files"
        raise ModelNotFound(f"{source.repo} has no file like {source.pattern}: it has {kinds}")
    shards = min(groups, key=lambda group: (len(group[0]), group[0]))
    whole = _SHARD.search(shards[0])
    if whole and len(shards) != int(whole[2]):
        raise ModelNotFound(f"{source.repo} has {len(shards)} of the {int(whole[2])} shards of {shards[0]}: choose another quant")
    return shards
