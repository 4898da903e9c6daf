"""Where edgespec keeps things: what it can make again in one folder, what is the user's in another."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

import platformdirs

__all__ = ["cache_folder", "data_folder"]

_log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Calibrations, what was learned, page files: `EDGESPEC_CACHE`, or the user's cache; a temporary folder where none can be."""
    return _writable(os.environ.get("EDGESPEC_CACHE") or platformdirs.user_cache_dir("edgespec"))


def data_folder() -> Path:
    """Conversations and the chat's history: `EDGESPEC_DATA`, or the user's data; a temporary folder where none can be."""
    return _writable(os.environ.get("EDGESPEC_DATA") or platformdirs.user_data_dir("edgespec"))


def _writable(path: str) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what people say is nobody else's
        if os.access(folder, os.W_OK):
            return folder
    except OSError as error:
        _log.info("%s: %s, using a temporary folder", folder, error.strerror)
    return Path(tempfile.gettempdir())
