"""The C filter of one model: segment boundaries come in, errors and interruptions are kept until the pass is over.

Nothing may leave a callback: an exception there would turn into "pass succeeded" with stale logits. It is stored, the
pass is aborted, and the session raises it once `llama_decode` has returned.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from edgespec.engines.base import Idle
from edgespec.engines.llamacpp.library import ggml, llama
from edgespec.engines.llamacpp.native import native_library
from edgespec.memory.layout import PARTS

__all__ = ["Callbacks"]

_Boundary = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
_SWITCH_INTERVAL = 1e-4
Handler = Callable[[int, bool, int], None]


class _State(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p),
        ("describe", ctypes.c_void_p),
        ("operation", ctypes.c_char_p),
        ("boundary", _Boundary),
        ("parts", ctypes.POINTER(ctypes.c_char_p)),
        ("streamed", ctypes.c_char_p),
        ("part_count", ctypes.c_int),
        ("layers", ctypes.c_int),
        ("stop", ctypes.c_int),
        ("seconds", ctypes.c_double),
    ]


class Callbacks:
    """`handler(key, before, tensor)` is called before and after the node that ends each segment of `streamed` computes.

    A key is layer * len(parts) + part, as in `memory.layout`; with `operation` only nodes that compute just that count.
    """

    def __init__(
        self, layers: int, streamed: Iterable[int] = (), handler: Handler | None = None, *, parts: Sequence[str] = PARTS,
        operation: str | None = None,
    ) -> None:  # fmt: skip
        chosen = set(streamed)
        self._parts = (ctypes.c_char_p * len(parts))(*(part.encode() for part in parts))
        self._handler = handler
        self._error: BaseException | None = None
        self._boundary = _Boundary(self._call)
        self._flags = bytes(key in chosen for key in range(layers * len(parts)))
        self._state = _State(
            ggml().get_name_address, ggml().op_desc_address, operation.encode() if operation else None, self._boundary,
            self._parts, self._flags, len(parts), layers, 0, 0.0,
        )  # fmt: skip
        self._library = native_library()
        self._eval = bool(chosen)
        self.idle: Idle | None = None  # what the running pass may do while it waits
        self.began = 0.0  # when the running pass began

    @property
    def seconds(self) -> float:
        """Time spent in the handler so far, its waiting included."""
        return float(self._state.seconds)

    def install(self, params: Any) -> None:
        """Name the callbacks in a `llama_context_params`; this object must outlive that context."""
        if self._library is None:
            return
        state = ctypes.addressof(self._state)
        if self._eval:
            params.cb_eval = ctypes.cast(self._library.edgespec_eval, type(params.cb_eval))
            params.cb_eval_user_data = state
        params.abort_callback = ctypes.cast(self._library.edgespec_abort, llama().ggml_abort_callback)
        params.abort_callback_data = state

    @contextmanager
    def running(self, idle: Idle | None = None) -> Iterator[None]:
        """Around a pass: let the callbacks have the GIL soon even beside a thread that never lets go of it.

        The switch interval belongs to the whole process; 5 ms for each of some fifty boundaries would double a sweep.
        """
        if not self._eval:
            yield
            return
        before, self.idle, self.began = sys.getswitchinterval(), idle, time.perf_counter()
        sys.setswitchinterval(min(before, _SWITCH_INTERVAL))
        try:
            yield
        finally:
            sys.setswitchinterval(before)
            self.idle = None

    def interrupt(self) -> None:
        """End the running pass after its current graph node, and every later one until `resume`. Safe from any thread."""
        self._state.stop = 1

    def resume(self) -> None:
        """Allow passes again after an interruption."""
        self._state.stop = 0

    def take_error(self) -> BaseException | None:
        """The error with which a callback ended the pass, if one did; later passes may run."""
        error, self._error = self._error, None
        if error is not None:
            self._state.stop = 0
        return error

    def _call(self, key: int, before: int, tensor: int) -> int:
        try:
            if self._handler:
                self._handler(key, bool(before), tensor)
        except BaseException as error:  # KeyboardInterrupt too; raised again by the session
            self._error = error
            return 0
        return 1
