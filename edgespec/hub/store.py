"""Models on this machine: what of the hub's cache edgespec can run, whoever put it there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgespec.errors import ModelNotFound
from edgespec.hub.found import snapshots, sources_of
from edgespec.hub.names import Source, catalog, chosen_files, grouped

__all__ = ["Stored", "remove", "stored"]


@dataclass(frozen=True)
class Stored:
    """A model of one or more files; `name` is what `run` takes."""

    name: str
    paths: tuple[Path, ...]

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.paths)


def stored(folder: Path) -> list[Stored]:
    """Every GGUF model in the hub's cache, newest snapshots first."""
    found: dict[tuple[str, str], Stored] = {}
    for snapshot, names in snapshots(folder):
        repo = _repo_of(snapshot, folder)
        for shards in grouped(names):
            paths = tuple(snapshot / shard for shard in shards)
            found.setdefault((repo, shards[0]), Stored(_name_of(repo, names, shards[0]), paths))
    return sorted(found.values(), key=lambda model: model.name)


def _repo_of(path: Path, folder: Path) -> str:
    return path.relative_to(folder).parts[0].removeprefix("models--").replace("--", "/", 1)


def _name_of(repo: str, names: list[str], first: str) -> str:
    """The catalog's, or the repository's with the file's."""
    short = (name for name, entry in catalog().items() if entry.source.repo == repo and _is(names, entry.source, first))
    return next(short, f"{repo}:{Path(first).stem}")


def _is(names: list[str], source: Source, first: str) -> bool:
    """Whether `source` means this one of the files `names`."""
    try:
        return chosen_files(names, source)[0] == first
    except ModelNotFound:
        return False


def remove(folder: Path, name: str) -> int:
    """Delete the files of a model; the bytes that are free now. Its drafter stays. Raises ModelNotFound."""
    source, _ = sources_of(name)
    freed = 0
    for model in stored(folder):
        names = [path.name for path in model.paths]
        if _repo_of(model.paths[0], folder) == source.repo and _is(names, source, names[0]):
            freed += sum(_remove(folder, path) for path in model.paths)
    if not freed:
        raise ModelNotFound(f"{name} is not here: `edgespec list` shows what is")
    return freed


def _remove(folder: Path, pointer: Path) -> int:
    """A pointer, and its bytes where nothing else points to them."""
    blob = pointer.resolve()
    size = blob.stat().st_size
    pointer.unlink()
    repo = folder / pointer.relative_to(folder).parts[0]
    others = [path for path in (repo / "snapshots").rglob("*") if path.is_symlink() and path.resolve() == blob]
    if not others and blob.is_relative_to(repo.resolve()):
        blob.unlink(missing_ok=True)
        return size
    return 0
