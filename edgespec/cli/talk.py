"""A conversation and what can be done with it: questions, and the commands that begin with a slash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgespec.cli.report import summary
from edgespec.errors import UsageError
from edgespec.memory.budget import format_size
from edgespec.runtime import Runtime
from edgespec.saved import Shelf
from edgespec.text.template import Message
from edgespec.types import Chunk, SamplingParams, Statistics

__all__ = ["COMMANDS", "Settings", "Talk", "help_text"]

_MOST_FILE = 4 << 20
_SWITCH = {"on": True, "off": False}
_SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "frequency_penalty", "presence_penalty", "seed", "max_tokens",
)  # fmt: skip
_SWITCHES = ("colour", "speculation", "verbose")


@dataclass(frozen=True)
class Settings:
    """What `/set` changes: sampling options by their names, and switches."""

    sampling: SamplingParams = field(default_factory=SamplingParams)
    colour: bool = False  # of tokens that were drafted
    speculation: bool = True
    verbose: bool = False

    @property
    def values(self) -> dict[str, Any]:
        return self._sampled | {name: getattr(self, name) for name in _SWITCHES}

    @property
    def options(self) -> dict[str, Any]:
        """For the runtime."""
        return self._sampled | {"speculate": self.speculation}

    @property
    def _sampled(self) -> dict[str, Any]:
        return {name: getattr(self.sampling, name) for name in _SAMPLING}

    def changed(self, name: str, value: str) -> Settings:
        """Raises UsageError for an unknown name, or a value out of range."""
        if name not in self.values:
            raise UsageError(f"there is no setting {name!r}: choose from {', '.join(self.values)}")
        kind = type(self.values[name])
        try:
            made: Any = _SWITCH[value.lower()] if kind is bool else kind(value)
        except (KeyError, ValueError):
            raise UsageError(f"{name} cannot be {value!r}: it is {'on or off' if kind is bool else 'a number'}") from None
        change = {name: made}
        return replace(self, **change) if name in _SWITCHES else replace(self, sampling=replace(self.sampling, **change))


@dataclass
class Talk:
    """`say` shows a line to people. Commands are methods; their first docstring line is their help."""

    runtime: Runtime
    say: Callable[[str], None]
    settings: Settings = field(default_factory=Settings)
    shelf: Shelf = field(default_factory=Shelf)
    messages: list[Message] = field(default_factory=list)
    statistics: Statistics | None = None  # of the last answer

    def ask(self, line: str) -> Iterator[Chunk]:
        """The answer, piece by piece; a question that gets none is taken back. Raises as `Runtime.stream`."""
        asked: Message = {"role": "user", "content": line}
        answer: list[str] = []
        try:
            for chunk in self.runtime.stream([*self.messages, asked], **self.settings.options):
                answer.append(chunk.text)
                self.statistics = chunk.statistics
                yield chunk
        finally:
            if answer:
                self.messages += [asked, {"role": "assistant", "content": "".join(answer)}]

    def command(self, line: str) -> str | None:
        """Do what a line that begins with a slash says; a question to ask now, if that is what it comes to.

        Raises EdgespecError.
        """
        name, _, rest = line[1:].partition(" ")
        if name not in COMMANDS:
            raise UsageError(f"there is no /{name}: /help shows what there is")
        question: str | None = COMMANDS[name](self, rest.strip())
        return question

    def set(self, rest: str) -> None:
        """NAME VALUE: change a setting; /show lists them."""
        name, _, value = rest.replace("=", " ").removeprefix("parameter ").strip().partition(" ")
        self.settings = self.settings.changed(name, value.strip())

    def show(self, rest: str) -> None:
        """Settings, the model, and how the last answer went."""
        for name, value in self.settings.values.items():
            self.say(f"{name:<16}{('on' if value else 'off') if isinstance(value, bool) else value}")
        plan = self.runtime.plan
        self.say(f"{'model':<16}{self.runtime.header.name}, {self.runtime.paging}, {plan.context} tokens of context")
        self.say(f"{'budget':<16}{format_size(plan.budget)}")
        if self.statistics:
            self.say(summary(self.runtime, self.statistics))

    def save(self, rest: str) -> None:
        """NAME: keep this conversation, to go on with it another day."""
        self.shelf.save(rest, self.runtime, self.messages, {"system": self.system_message})
        self.say(f"saved as {rest}")

    def load(self, rest: str) -> None:
        """NAME: go on with a saved conversation; without a name, list them."""
        if not rest:
            self.say("saved: " + (", ".join(self.shelf.names()) or "none"))
            return
        found = self.shelf.load(rest, self.runtime)
        self.messages = list(found.messages)
        for note in found.notes:
            self.say(note)
        turns = sum(message["role"] == "user" for message in self.messages)
        self.say(f"{turns} turns; {found.reused} tokens need not be read again")

    def clear(self, rest: str) -> None:
        """Forget what was said; the system message stays."""
        self.messages = [message for message in self.messages if message["role"] == "system"]

    def regen(self, rest: str) -> str:
        """Ask the last question again, with another seed."""
        if not any(message["role"] == "user" for message in self.messages):
            raise UsageError("there is nothing to answer again: ask something first")
        while (last := self.messages.pop())["role"] != "user":
            pass
        self.settings = self.settings.changed("seed", str(self.settings.sampling.seed + 1))
        return str(last["content"])

    def read(self, rest: str) -> str:
        """FILE: ask what a text file says."""
        try:
            with Path(rest).expanduser().open(encoding="utf-8") as file:
                text = file.read(_MOST_FILE + 1)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{rest or 'FILE'} cannot be read ({error}): name a text file") from error
        if len(text) > _MOST_FILE:
            raise UsageError(f"{rest} is longer than {_MOST_FILE >> 20} MiB: cut it")
        return text

    def system(self, rest: str) -> None:
        """TEXT: what the model is told before everything else; without a text, nothing."""
        others = [message for message in self.messages if message["role"] != "system"]
        self.messages = ([{"role": "system", "content": rest}] if rest else []) + others

    @property
    def system_message(self) -> str:
        return next((str(message["content"]) for message in self.messages if message["role"] == "system"), "")

    def help(self, rest: str) -> None:
        """This list."""
        self.say(help_text())

    @property
    def status(self) -> str:
        """The line under the prompt."""
        stats = self.statistics
        if stats is None:
            return "/help shows what you can do; Ctrl-C stops an answer, Ctrl-D leaves"
        drafts = f"{stats.draft_acceptance:.0%} of {stats.drafted} drafts right" if stats.drafted else "no drafts"
        used = format_size(self.runtime.memory_used)
        return (
            f"{stats.tokens_per_second:.1f} tokens/s · {drafts} · {used} of {format_size(self.runtime.plan.budget)} "
            f"· {format_size(stats.bytes_paged)} paged"
        )


COMMANDS: dict[str, Callable[[Talk, str], Any]] = {
    "set": Talk.set, "show": Talk.show, "save": Talk.save, "load": Talk.load, "clear": Talk.clear, "regen": Talk.regen,
    "read": Talk.read, "system": Talk.system, "help": Talk.help,
}  # fmt: skip


def help_text() -> str:
    """Every command with what it does."""
    lines = [(name, (command.__doc__ or "").splitlines()[0]) for name, command in COMMANDS.items()]
    lines += [("bye", "Leave; so does Ctrl-D."), ('"""', "Begins and ends a message of several lines.")]
    return "\n".join(f"{name if name.startswith(chr(34)) else '/' + name:<10}{text}" for name, text in lines)
