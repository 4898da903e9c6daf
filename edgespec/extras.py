"""Libraries that few commands need: imported when one of these runs, and where they are missing, named with what brings them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edgespec.errors import UsageError

__all__ = ["extra"]


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around imports that need the libraries of the extra `name`. Raises UsageError with the line that installs them."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library in ("", "edgespec"):  # our own fault, not a library's
            raise
        raise UsageError(f"{library} is missing: pip install 'edgespec[{name}]'") from error
