"""What a program says when the engine takes its process down: one line, and the signal's own exit status. See `_crash.c`."""

from __future__ import annotations

import ctypes

from edgespec.engines.llamacpp.native import native_library

__all__ = ["abort_callback", "stage", "watch"]

_watching = False


def watch() -> None:
    """From now on a crash of this process is explained. For programs: a library leaves signals to whoever uses it."""
    global _watching
    if library := native_library():
        _watching = True
        library.edgespec_watch()


def abort_callback() -> ctypes.c_void_p | None:
    """What ggml should call with the message of a failed assertion, instead of printing it; None where nobody watches."""
    library = native_library()
    return ctypes.cast(library.edgespec_reason, ctypes.c_void_p) if library and _watching else None


def stage(text: str) -> None:
    """What the engine is asked to do now, as the line would tell it: "in a pass over some-model"."""
    if library := native_library():
        library.edgespec_stage(text.encode())
