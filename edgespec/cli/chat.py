"""`edgespec chat`: talk on a terminal; the KV cache of what was said before is reused."""

from __future__ import annotations

import sys

from edgespec.cli import options as opt
from edgespec.cli.console import interruptible, pumped, say, write
from edgespec.cli.lines import lines
from edgespec.cli.markdown import MarkdownStyler
from edgespec.cli.opening import opened
from edgespec.cli.report import summary
from edgespec.cli.talk import COMMANDS, Settings, Talk
from edgespec.errors import ContextFull, EdgespecError, ModelError, UsageError
from edgespec.types import Chunk, SamplingParams

__all__ = ["chat"]

_DRAFTED, _RESET = "\x1b[32m", "\x1b[0m"


def chat(
    target: opt.Target = None,
    drafter: opt.Drafter = None,
    budget: opt.Budget = None,
    context: opt.Context = None,
    max_tokens: opt.MaxTokens = 1024,
    temperature: opt.Temperature = 0.0,
    seed: opt.Seed = 0,
    system: opt.System = None,
    load: opt.Load = None,
    speculation: opt.Mode = "auto",
    stages: opt.Stages = None,
    datastore: opt.Datastore = None,
    kv_type: opt.KvType = "f16",
    pages: opt.Pages = "auto",
    threads: opt.Threads = None,
    strict: opt.Strict = False,
    trace: opt.Trace = None,
    verbose: opt.Verbose = False,
) -> None:
    """Talk with the model; /help shows what else it can do. Ctrl-C stops an answer, Ctrl-D or /bye leaves."""
    settings = Settings(SamplingParams(temperature=temperature, seed=seed, max_tokens=max_tokens), verbose=verbose)
    opening = opened(trace, **opt.for_loading(locals()))
    with opening as runtime:
        talk = Talk(runtime, say, settings)
        if load:
            talk.load(load)
        if system:
            talk.system(system)
        for line in lines(list(COMMANDS), lambda: talk.status):
            _turn(talk, line)


def _turn(talk: Talk, line: str) -> None:
    """A command or a question; what goes wrong with one of them ends no chat, but for faults that all would meet."""
    try:
        question = talk.command(line) if line.startswith("/") else line
        if question is not None:
            _answer(talk, question)
    except ContextFull as error:
        say(f"{error}; or /clear to forget what was said")
    except (UsageError, ModelError) as error:
        say(str(error))
    except EdgespecError:
        write("\n")
        raise


def _answer(talk: Talk, question: str) -> None:
    styled = sys.stdout.isatty() and not talk.settings.colour
    markdown = MarkdownStyler()
    with interruptible(talk.runtime):
        for chunk in pumped(talk.ask(question)):
            if styled:
                write(markdown.feed(chunk.text))
            else:
                write(_coloured(chunk) if talk.settings.colour else chunk.text)
    write((markdown.finish() if styled else "") + "\n")
    if talk.settings.verbose and talk.statistics:
        say(summary(talk.runtime, talk.statistics))


def _coloured(chunk: Chunk) -> str:
    return "".join(f"{_DRAFTED}{text}{_RESET}" if drafted else text for text, drafted in chunk.spans)
