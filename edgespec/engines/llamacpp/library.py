"""The engine's shared libraries: imported here once, with a typed error when absent and its log sent to `logging`."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import logging
from pathlib import Path
from typing import Any

from edgespec.errors import EngineMissing

__all__ = ["Ggml", "engine_version", "filter_library", "ggml", "llama"]

_log = logging.getLogger("edgespec.engine")
_LEVELS = {2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}  # the engine's "info" is our debug


@functools.cache
def llama() -> Any:
    """The low-level bindings of llama-cpp-python, backend started. Raises EngineMissing."""
    try:
        from llama_cpp import llama_cpp as module
    except Exception as error:
        raise EngineMissing(f"llama-cpp-python cannot be loaded ({error}): run scripts/setup.sh, or `edgespec doctor`") from error
    module.llama_log_set(_forward_log, ctypes.c_void_p())
    module.llama_backend_init()
    return module


def _log_line(level: int, text: bytes | None, _user: object) -> None:
    if text and (line := text.decode("utf-8", "replace").rstrip()) and line != ".":
        _log.log(_LEVELS.get(level, logging.DEBUG), "%s", line)


_forward_log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_log_line)


def engine_version() -> str:
    llama()
    import llama_cpp

    return f"llama-cpp-python {llama_cpp.__version__}"


class Ggml:
    """The few functions of libggml that the bindings leave out."""

    def __init__(self, folder: Path) -> None:
        base = ctypes.CDLL(str(_library(folder, "ggml-base")))
        pointer = ctypes.c_void_p
        self.get_name_address = ctypes.cast(base.ggml_get_name, pointer).value
        self.get_name = base.ggml_get_name
        self.get_name.argtypes, self.get_name.restype = [pointer], ctypes.c_char_p
        self.get_data = base.ggml_get_data
        self.get_data.argtypes, self.get_data.restype = [pointer], pointer
        self.nbytes = base.ggml_nbytes
        self.nbytes.argtypes, self.nbytes.restype = [pointer], ctypes.c_size_t
        self.base, self.cpu = base, ctypes.CDLL(str(_library(folder, "ggml-cpu")))


def _library(folder: Path, name: str) -> Path:
    for pattern in (f"lib{name}.so", f"lib{name}.dylib", f"{name}.dll"):
        if (folder / pattern).exists():
            return folder / pattern
    raise EngineMissing(f"{name} is not beside the engine in {folder}: run scripts/setup.sh again")


@functools.cache
def ggml() -> Ggml:
    llama()
    import llama_cpp

    return Ggml(Path(llama_cpp.__file__).parent / "lib")


@functools.cache
def filter_library() -> ctypes.CDLL | None:
    """The C callbacks built with this package, or None where no compiler was at hand."""
    spec = importlib.util.find_spec("edgespec.engines.llamacpp._filter")
    return ctypes.CDLL(spec.origin) if spec and spec.origin else None
