"""Which processes of this user run a model: a small file each, believed only while the process it names lives."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from edgespec.cache import cache_folder

__all__ = ["RunningModel", "announced", "running"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunningModel:
    pid: int
    model: str
    budget_bytes: int
    resident_bytes: int


def _folder() -> Path:
    return cache_folder() / "running"


@contextmanager
def announced(model: str, budget: int) -> Iterator[None]:
    """While the block runs `running` tells of it."""
    path = _folder() / f"{os.getpid()}.json"
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"model": model, "budget": budget, "began": psutil.Process().create_time()}))
    except OSError as error:
        _log.info("nobody will know that this runs: %s", error.strerror)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def running() -> list[RunningModel]:
    """By process id; files of processes that ended without removing theirs are removed."""
    found = []
    for path in sorted(_folder().glob("*.json")):
        try:
            told = json.loads(path.read_text())
            process = psutil.Process(int(path.stem))
            if process.create_time() != told["began"]:
                raise psutil.NoSuchProcess(process.pid)
            found.append(RunningModel(process.pid, str(told["model"]), int(told["budget"]), process.memory_info().rss))
        except (psutil.NoSuchProcess, ValueError, KeyError, TypeError):
            path.unlink(missing_ok=True)
        except (psutil.AccessDenied, OSError):
            continue
    return found
