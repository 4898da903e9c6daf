"""The files that come with edgespec, the folder `models`: the embedded pair, its golden files and the catalog."""

from __future__ import annotations

from pathlib import Path

from edgespec.errors import ModelNotFound

__all__ = ["embedded_model", "shipped"]


def embedded_model(role: str) -> Path:
    """The pair that ships with edgespec; `role` is "target" or "drafter". Raises ModelNotFound."""
    return shipped(f"edgespec-{role}.gguf")


def shipped(name: str) -> Path:
    """A file of `models`, by its path below that folder. Raises ModelNotFound."""
    package = Path(__file__).parent
    for folder in (package / "models", package.parent / "models"):  # of an installed package, of a clone
        if (folder / name).exists():
            return folder / name
    raise ModelNotFound(f"{name} should have come with edgespec and is not in {package / 'models'}: install edgespec again")
