"""Where a chat's lines come from: a terminal with history, completion and several lines, or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from edgespec.cache import data_folder

__all__ = ["lines"]

_QUOTES = '"""'


def lines(commands: list[str], status: Callable[[], str]) -> Iterator[str]:
    """Messages, until the end of input, /bye, or Ctrl-C twice in a row. Text between triple quotes is one message."""
    read = _terminal(commands, status) if sys.stdin.isatty() else _pipe
    pressed = False
    while True:
        try:
            line = _whole(read)
        except KeyboardInterrupt:
            if pressed:
                return
            pressed = True
            sys.stderr.write("press Ctrl-C once more to leave\n")
            continue
        pressed = False
        if line is None or line.strip() == "/bye":
            return
        if line.strip():
            yield line


def _whole(read: Callable[[str], str | None]) -> str | None:
    line = read(">>> ")
    if line is None or not line.lstrip().startswith(_QUOTES):
        return line
    text = line.lstrip()[len(_QUOTES) :]
    while not text.rstrip().endswith(_QUOTES):
        if (more := read("... ")) is None:
            break
        text += "\n" + more
    return text.rstrip().removesuffix(_QUOTES).strip("\n")


def _pipe(prompt: str) -> str | None:
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def _terminal(commands: list[str], status: Callable[[], str]) -> Callable[[str], str | None]:
    session: PromptSession[str] = PromptSession(
        history=_history(),
        completer=WordCompleter([f"/{name}" for name in [*commands, "bye"]], sentence=True),
        complete_while_typing=False,
        key_bindings=_keys(),
        bottom_toolbar=lambda: FormattedText([("noreverse fg:ansibrightblack", status())]),
    )

    def read(prompt: str) -> str | None:
        try:
            return session.prompt(prompt)
        except EOFError:
            return None

    return read


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def newline(event: KeyPressEvent) -> None:
        """Alt-Enter begins a line; Enter alone sends."""
        event.current_buffer.insert_text("\n")

    return keys


def _history() -> FileHistory | InMemoryHistory:
    path = data_folder() / "history"
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
