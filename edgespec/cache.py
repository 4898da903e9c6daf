"""Where edgespec keeps what it can make again: calibrations, what was learned, inflated models, engine wheels."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

import platformdirs

__all__ = ["cache_folder"]

_log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """`EDGESPEC_CACHE`, or the user's cache; a temporary folder where that cannot be written."""
    folder = Path(os.environ.get("EDGESPEC_CACHE") or platformdirs.user_cache_dir("edgespec"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError as error:
        _log.info("%s: %s, using a temporary folder", folder, error.strerror)
    return Path(tempfile.gettempdir())
