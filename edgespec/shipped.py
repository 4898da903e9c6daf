"""The files that come with edgespec: the embedded pair, its golden file, the catalog of names."""

from __future__ import annotations

from pathlib import Path

from edgespec.errors import ModelNotFound

__all__ = ["embedded_model", "shipped"]

_PACKAGE = Path(__file__).parent


def embedded_model(role: str) -> Path:
    """The pair that ships with edgespec; `role` is "target" or "drafter"."""
    return shipped(f"edgespec-{role}.gguf")


def shipped(name: str) -> Path:
    """A file of the folder `models`. Raises ModelNotFound."""
    for folder in (_PACKAGE / "models", _PACKAGE.parent / "models"):  # of an installed package, and of a clone
        if (folder / name).exists():
            return folder / name
    raise ModelNotFound(f"the embedded {name} is not installed: name a model with --target")
