"""Wiring: whether a model's weights are better paged in the engine's repacked layout, and making that page file."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from edgespec.cache import cache_folder
from edgespec.engines.llamacpp.library import engine_version
from edgespec.engines.llamacpp.pointers import Refusal
from edgespec.engines.llamacpp.repack import Repacker
from edgespec.errors import PagingError
from edgespec.memory.arena import Arena
from edgespec.memory.cpu import features
from edgespec.memory.layout import lay_out
from edgespec.memory.pagefile import Entry, PageFile, find, name_of, write
from edgespec.memory.weightfile import WeightFile
from edgespec.types import ModelHeader, TensorExtent

__all__ = ["existing_pages", "make_pages", "pages_folder", "repackable"]

_log = logging.getLogger(__name__)


def pages_folder() -> Path:
    return cache_folder() / "pages"


def existing_pages(header: ModelHeader) -> PageFile | None:
    """The page file of this model for this engine and CPU, if there is a whole one."""
    return find(pages_folder(), _name(header), header)


def repackable(header: ModelHeader) -> bool:
    """Whether the engine has kernels for repacked weights of some of this model's types on this CPU."""
    try:
        with closing(Repacker()) as repacker:
            return any(_repacked(tensor, repacker) for tensor in header.tensors)
    except Refusal:
        return False


def make_pages(header: ModelHeader, progress: Callable[[str], None]) -> PageFile | None:
    """Write it, one tensor in memory at a time; None where the engine repacks none of the weights.

    Raises PagingError when there is no room, or when the model cannot be read.
    """
    try:
        repacker = Repacker()
    except Refusal as refusal:
        _log.info("weights are paged as they are: %s", refusal)
        return None
    try:
        if not any(_repacked(tensor, repacker) for tensor in header.tensors):
            return None
        progress(f"writing a page file of {header.weight_bytes >> 20} MiB, once; `edgespec pages rm` removes it")
        write(pages_folder(), _name(header), header, _entries(header, repacker))
    finally:
        repacker.close()
    made = existing_pages(header)
    if made is None:
        raise PagingError("the page file was not whole after writing: check the disk, or use --pages off")
    return made


def _name(header: ModelHeader) -> str:
    return name_of(header, engine_version(), f"{platform.machine()} {features()}")


def _repacked(tensor: TensorExtent, repacker: Repacker) -> bool:
    """Weights of layers that are only multiplied with; embedding and head stay as they are."""
    return tensor.name.startswith("blk.") and tensor.name.endswith(".weight") and repacker.supports(tensor)


def _entries(header: ModelHeader, repacker: Repacker) -> Iterator[Entry]:
    """Every tensor's bytes as they are to be paged, read directly, past the page cache."""
    file = WeightFile(header.files)
    arena = Arena(max(lay_out([tensor]).size for tensor in header.tensors))
    view = arena.take(len(arena)).view
    try:
        for tensor in header.tensors:
            layout = lay_out([tensor])
            for run in layout.runs:
                file.read(run, view[run.place : run.place + run.size])
            start = layout.places[0][1]
            data = view[start : start + tensor.size]
            repacked = _repacked(tensor, repacker)
            yield tensor, repacked, repacker.repack(tensor, data) if repacked else data
    finally:
        file.close()
        view.release()
        arena.close()
