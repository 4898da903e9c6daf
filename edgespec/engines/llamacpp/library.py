"""The engine's shared libraries: proven, then imported here once, with a typed error when absent, its log sent to `logging`."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
from typing import Any

from edgespec.engines.llamacpp import crash
from edgespec.engines.llamacpp.proof import library_folder, proven
from edgespec.errors import EngineMissing

__all__ = ["Ggml", "InitParams", "engine_version", "ggml", "llama"]

_log = logging.getLogger("edgespec.engine")
_LEVELS = {2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}  # the engine's "info" is our debug


@functools.cache
def llama() -> Any:
    """The low-level bindings of llama-cpp-python, backend started. Raises EngineMissing, EngineBroken."""
    proven()
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # a failed assertion would start a debugger and print its frames
    try:
        from llama_cpp import llama_cpp as module
    except Exception as error:
        raise EngineMissing(f"llama-cpp-python cannot be loaded ({error}): run scripts/setup.sh, or `edgespec doctor`") from error
    module.llama_log_set(_forward_log, ctypes.c_void_p())
    if callback := crash.abort_callback():
        _library("ggml-base").ggml_set_abort_callback(callback)
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


class InitParams(ctypes.Structure):
    """`struct ggml_init_params`"""

    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


_P, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
_BASE = (
    ("ggml_get_name", _TEXT, [_P]),
    ("ggml_get_data", _P, [_P]),
    ("ggml_nbytes", _SIZE, [_P]),
    ("ggml_init", _P, [InitParams]),
    ("ggml_free", None, [_P]),
    ("ggml_new_tensor_2d", _P, [_P, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]),
    ("ggml_mul_mat", _P, [_P, _P, _P]),
    ("ggml_new_graph", _P, [_P]),
    ("ggml_build_forward_expand", None, [_P, _P]),
    ("ggml_backend_reg_dev_get", _P, [_P, _SIZE]),
    ("ggml_backend_reg_get_proc_address", _P, [_P, _TEXT]),
    ("ggml_backend_buft_name", _TEXT, [_P]),
    ("ggml_backend_buft_get_alloc_size", _SIZE, [_P, _P]),
    ("ggml_backend_alloc_ctx_tensors_from_buft", _P, [_P, _P]),
    ("ggml_backend_buffer_free", None, [_P]),
    ("ggml_backend_tensor_set", None, [_P, _P, _SIZE, _SIZE]),
    ("ggml_quantize_chunk", _SIZE, [ctypes.c_int, _P, _P, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, _P]),
)
_CPU: tuple[tuple[str, Any, list[Any]], ...] = (
    ("ggml_graph_compute_with_ctx", ctypes.c_int, [_P, _P, ctypes.c_int]),
    ("ggml_backend_cpu_reg", _P, []),
)


class Ggml:
    """The few functions of libggml that the bindings leave out, with their types: `base` and `cpu` are the libraries."""

    def __init__(self) -> None:
        self.base = _library("ggml-base")
        self.cpu = _library("ggml-cpu")
        for library, functions in ((self.base, _BASE), (self.cpu, _CPU)):
            for name, result, arguments in functions:
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
        self.get_name_address = ctypes.cast(self.base.ggml_get_name, _P).value
        self.op_desc_address = ctypes.cast(self.base.ggml_op_desc, _P).value
        self.get_name, self.get_data, self.nbytes = self.base.ggml_get_name, self.base.ggml_get_data, self.base.ggml_nbytes


def _library(name: str) -> ctypes.CDLL:
    # Wheels turn links into copies: another name than the engine's own would load a second library with a state of its own.
    folder = library_folder()
    for pattern in (f"lib{name}.so.0", f"lib{name}.so", f"lib{name}.dylib", f"{name}.dll"):
        if (folder / pattern).exists():
            return ctypes.CDLL(str(folder / pattern))
    raise EngineMissing(f"{name} is not beside the engine in {folder}: run scripts/setup.sh again")


@functools.cache
def ggml() -> Ggml:
    llama()
    return Ggml()
