"""From a name to files: looked at and planned for before anything large is fetched."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgespec.errors import ModelInvalid
from edgespec.hub.client import Hub, RemoteFile
from edgespec.hub.found import Pulled, sources_of
from edgespec.hub.names import chosen_files
from edgespec.loading import Options, expected, preview
from edgespec.modelfile.header import read_model
from edgespec.types import Expected, MemoryPlan, ModelHeader

__all__ = ["Offer", "fetch", "look"]

_FIRST = 2 << 20  # bytes of a file in which most headers end
_MOST = 256 << 20


@dataclass(frozen=True)
class Offer:
    """What pulling would mean: the files of both halves, what of them is not here yet, the plan they would run by, its speed."""

    target: tuple[RemoteFile, ...]
    drafter: tuple[RemoteFile, ...]
    missing_bytes: int
    plan: MemoryPlan
    expected_tokens_per_second: Expected
    notes: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in (*self.target, *self.drafter))


def look(hub: Hub, name: str, options: Options, progress: Callable[[str], None] = lambda text: None) -> Offer:
    """Fetch the headers alone, and plan. Raises HubError, ModelError, or BudgetError where it could not run."""
    halves: list[tuple[RemoteFile, ...]] = []
    headers: list[ModelHeader] = []
    with tempfile.TemporaryDirectory(prefix="edgespec-look-") as folder:
        for number, source in enumerate(filter(None, sources_of(name))):
            progress(f"looking at {source.repo}")
            listed = {file.name: file for file in hub.files(source.repo)}
            halves.append(tuple(listed[name] for name in chosen_files(list(listed), source)))
            headers.append(_header(hub, halves[-1], Path(folder) / str(number)))
        prepared = preview(headers[0], headers[1] if len(headers) > 1 else None, options, progress)
    missing = sum(file.size for half in halves for file in half if hub.cached(file) is None)
    second = halves[1] if len(halves) > 1 else ()
    return Offer(halves[0], second, missing, prepared.plan, expected(prepared), prepared.notes)


def fetch(hub: Hub, offer: Offer, progress: Callable[[RemoteFile, int], None] = lambda file, done: None) -> Pulled:
    """Download what is missing; `progress` is told of bytes. Raises HubError; what arrived is kept."""

    def all_of(files: Sequence[RemoteFile]) -> Path:
        paths = [hub.download(file, functools.partial(progress, file)) for file in files]
        return paths[0]

    target = all_of(offer.target)
    return Pulled(target, all_of(offer.drafter) if offer.drafter else None)


def _header(hub: Hub, files: Sequence[RemoteFile], folder: Path) -> ModelHeader:
    """Read as if the files were in `folder`: the begin of each, with a hole behind it. Raises HubError or ModelInvalid."""
    folder.mkdir()
    paths = [folder / Path(file.name).name for file in files]
    count = _FIRST
    while True:
        for file, path in zip(files, paths, strict=True):
            path.write_bytes(hub.begin(file, count))
            os.truncate(path, file.size)
        try:
            return read_model(paths[0])
        except ModelInvalid:
            if count >= min(_MOST, max(file.size for file in files)) or not _might_go_on(paths[0]):
                raise
            count *= 4


def _might_go_on(path: Path) -> bool:
    """Whether more bytes could make a header of it."""
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"
