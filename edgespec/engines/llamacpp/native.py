"""The C part of this package, which is used through ctypes."""

from __future__ import annotations

import ctypes
import functools
import importlib.util

__all__ = ["native_library"]


@functools.cache
def native_library() -> ctypes.CDLL | None:
    """None where no compiler was at hand when the package was installed."""
    spec = importlib.util.find_spec("edgespec.engines.llamacpp._native")
    return ctypes.CDLL(spec.origin) if spec and spec.origin else None
