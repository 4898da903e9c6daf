"""Talk on stderr, answers on stdout, and Ctrl-C that stops a generation instead of the program."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

from edgespec.runtime import Runtime
from edgespec.types import Chunk

__all__ = ["bar", "interruptible", "on_terminal", "progress", "pumped", "say", "write"]

_console = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """One line of talk."""
    _console.print(text, markup=False, soft_wrap=True)


@contextmanager
def progress() -> Iterator[Status]:
    """A spinner with what is being done, on a terminal only."""
    if not on_terminal():
        yield Status(None)
        return
    with _console.status("starting") as spinner:
        yield Status(spinner)


def bar(*columns: ProgressColumn) -> Progress:
    """What is being done, a bar, and `columns`, on a terminal only."""
    return Progress(TextColumn("{task.description}"), BarColumn(), *columns, console=_console, disable=not on_terminal())


def on_terminal() -> bool:
    """Whether talk reaches a person."""
    return _console.is_terminal


class Status:
    def __init__(self, spinner: object | None) -> None:
        self._spinner = spinner

    def __call__(self, text: str) -> None:
        if self._spinner is not None:
            self._spinner.update(text)  # type: ignore[attr-defined]


@contextmanager
def interruptible(runtime: Runtime) -> Iterator[None]:
    """The first Ctrl-C cancels the generation, the second ends the program with 130, also when it comes on the way out."""
    pressed = 0

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1:
            os._exit(130)
        runtime.cancel()

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        if not pressed:
            signal.signal(signal.SIGINT, before)


def pumped(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The same chunks, generated in another thread: signals are handled at once while the engine computes."""
    ready: queue.Queue[Chunk | BaseException | None] = queue.Queue()

    def work() -> None:
        try:
            for chunk in chunks:
                ready.put(chunk)
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    thread = threading.Thread(target=work, name="edgespec-generate", daemon=True)
    thread.start()
    while (item := ready.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item
    thread.join()


def write(text: str) -> None:
    """Data on stdout; ends the command quietly when whoever read it has gone."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit cannot fail again
        raise typer.Exit(0) from None
