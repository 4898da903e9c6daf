"""What running a model taught about its costs, kept between processes: measured tables by model, plan and machine."""

from __future__ import annotations

import json
import logging
import math
import uuid
from pathlib import Path

from edgespec.types import Tables

__all__ = ["recall", "remember"]

_MOST_KEYS = 64
_log = logging.getLogger(__name__)


def recall(cache: Path, key: str) -> Tables:
    """The tables kept under `key`; empty where there are none or the file is damaged."""
    tables = _read(cache).get(key, {})
    try:
        made = {str(name): {int(size): float(value) for size, value in table.items()} for name, table in tables.items()}
    except (AttributeError, TypeError, ValueError):
        return {}
    return made if all(0 <= value < math.inf for table in made.values() for value in table.values()) else {}


def remember(cache: Path, key: str, tables: Tables) -> None:
    """Keep `tables` under `key`; the oldest keys go when there are many. A read-only cache is no error."""
    known = _read(cache)
    known.pop(key, None)
    known[key] = tables
    partial = cache.with_name(f"{cache.name}.{uuid.uuid4().hex[:8]}.partial")  # two processes may end at once
    try:
        partial.write_text(json.dumps(dict(list(known.items())[-_MOST_KEYS:]), indent=1))
        partial.replace(cache)
    except OSError as error:
        _log.info("what was learned cannot be kept: %s", error.strerror)


def _read(cache: Path) -> dict[str, Tables]:
    try:
        known = json.loads(cache.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
