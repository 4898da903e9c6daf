"""`edgespec chat`: a plain loop over several turns; the KV cache of what was said before is reused."""

from __future__ import annotations

import sys

from edgespec import runtime as api
from edgespec.cli import options as opt
from edgespec.cli.console import interruptible, pumped, say, write
from edgespec.cli.opening import opened
from edgespec.cli.report import summary
from edgespec.errors import ContextFull
from edgespec.text.template import Message

__all__ = ["chat"]


def chat(
    target: opt.Target = None,
    drafter: opt.Drafter = None,
    budget: opt.Budget = None,
    context: opt.Context = None,
    max_tokens: opt.MaxTokens = 256,
    temperature: opt.Temperature = 0.0,
    seed: opt.Seed = 0,
    system: opt.System = None,
    speculation: opt.Mode = opt.SpeculationMode.auto,
    stages: opt.Stages = None,
    datastore: opt.Datastore = None,
    kv_type: opt.KvType = opt.KvTypes.f16,
    pages: opt.Pages = opt.PagesChoice.auto,
    threads: opt.Threads = None,
    strict: opt.Strict = False,
    trace: opt.Trace = None,
    verbose: opt.Verbose = False,
) -> None:
    """Talk with the model. Ctrl-C stops an answer, Ctrl-D or /bye leaves."""
    opening = opened(
        trace, target=target, drafter=drafter, budget=budget, context=context, threads=threads, strict=strict,
        speculation=speculation.value, stages=opt.stage_list(stages), datastore=datastore, kv_type=kv_type.value,
        pages=pages.value,
    )  # fmt: skip
    with opening as runtime:
        messages: list[Message] = [{"role": "system", "content": system}] if system else []
        while (line := _read()) is not None:
            if line.strip():
                _turn(runtime, messages, line, max_tokens=max_tokens, temperature=temperature, seed=seed, verbose=verbose)


def _read() -> str | None:
    """The next line, None at the end."""
    if sys.stdin.isatty():
        sys.stderr.write(">>> ")
        sys.stderr.flush()
    try:
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        return None
    return None if not line or line.strip() == "/bye" else line.rstrip("\n")


def _turn(
    runtime: api.Runtime, messages: list[Message], line: str, *, max_tokens: int, temperature: float, seed: int, verbose: bool
) -> None:
    """One question and its answer, both appended to `messages`; a turn that does not fit is taken back."""
    messages.append({"role": "user", "content": line})
    answer = ""
    try:
        with interruptible(runtime):
            for chunk in pumped(runtime.stream(messages, max_tokens=max_tokens, temperature=temperature, seed=seed)):
                answer += chunk.text
                write(chunk.text)
    except ContextFull as error:
        messages.pop()
        say(f"{error}; or start again to forget what was said")
        return
    write("\n")
    messages.append({"role": "assistant", "content": answer})
    if verbose:
        say(summary(runtime, chunk.statistics))
