"""What was pulled before, found without asking the hub and without its client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgespec.errors import ModelNotFound
from edgespec.hub.names import Source, chosen_files, entry_named, source_named

__all__ = ["Pulled", "find", "snapshots", "sources_of"]


@dataclass(frozen=True)
class Pulled:
    """Paths of a model and its drafter, the first shard's of each."""

    target: Path
    drafter: Path | None


def sources_of(name: str) -> tuple[Source, Source | None]:
    """Of a model and its drafter. Raises UsageError or ModelNotFound."""
    if "/" in name:
        return source_named(name), None
    entry = entry_named(name)
    return entry.source, entry_named(entry.drafter).source if entry.drafter else None


def find(folder: Path, name: str) -> Pulled:
    """A model in the hub's cache, and its drafter as far as it is there. Raises ModelNotFound, naming the pull."""
    target, drafter = sources_of(name)
    found = _cached(folder, target)
    if found is None:
        raise ModelNotFound(f"{name} is not here yet: edgespec pull {name}")
    return Pulled(found, _cached(folder, drafter) if drafter else None)


def snapshots(folder: Path, repos: str = "models--*") -> Iterator[tuple[Path, list[str]]]:
    """States of the repositories in the cache, the newest first, with the GGUF files each has."""
    for snapshot in sorted(folder.glob(f"{repos}/snapshots/*"), key=lambda path: path.stat().st_mtime, reverse=True):
        yield snapshot, [str(path.relative_to(snapshot)) for path in snapshot.rglob("*.gguf") if path.exists()]


def _cached(folder: Path, source: Source) -> Path | None:
    """The first file of the newest snapshot that has all shards."""
    for snapshot, names in snapshots(folder, f"models--{source.repo.replace('/', '--')}"):
        try:
            return snapshot / chosen_files(names, source)[0]
        except ModelNotFound:
            continue
    return None
