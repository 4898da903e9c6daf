"""`edgespec run`: one prompt, one answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from edgespec import runtime as api
from edgespec.cli import options as opt
from edgespec.cli.console import interruptible, progress, pumped, say, write
from edgespec.cli.opening import opened
from edgespec.cli.report import as_json, summary
from edgespec.errors import Cancelled, UsageError
from edgespec.hub.names import catalog, is_name
from edgespec.strategy import DRAFT_CELLS
from edgespec.text.template import Message
from edgespec.types import Chunk, SamplingParams

__all__ = ["run"]


def run(
    words: Annotated[
        list[str] | None, typer.Argument(help="The prompt, after a model's name if one is given; without it, --file or stdin.")
    ] = None,
    file: opt.File = None,
    target: opt.Target = None,
    drafter: opt.Drafter = None,
    budget: opt.Budget = None,
    context: opt.Context = None,
    max_tokens: opt.MaxTokens = 256,
    temperature: opt.Temperature = 0.0,
    top_k: opt.TopK = 40,
    top_p: opt.TopP = 0.95,
    min_p: opt.MinP = 0.05,
    repeat_penalty: opt.RepeatPenalty = 1.0,
    frequency_penalty: opt.FrequencyPenalty = 0.0,
    presence_penalty: opt.PresencePenalty = 0.0,
    seed: opt.Seed = 0,
    stop: opt.Stop = None,
    system: opt.System = None,
    raw: opt.Raw = False,
    speculation: opt.Mode = "auto",
    draft_nodes: opt.DraftNodes = 15,
    stages: opt.Stages = None,
    datastore: opt.Datastore = None,
    verify: opt.Verify = "match",
    lossy: opt.Lossy = None,
    draft_view: opt.DraftView = "full",
    draft_cells: opt.DraftCells = DRAFT_CELLS,
    branching: opt.Branching = True,
    draft_ahead: opt.DraftAhead = True,
    kv_type: opt.KvType = "f16",
    pages: opt.Pages = "auto",
    threads: opt.Threads = None,
    strict: opt.Strict = False,
    trace: opt.Trace = None,
    as_object: opt.Json = False,
    verbose: opt.Verbose = False,
    explain: opt.Explain = False,
) -> None:
    """Answer one prompt and say what it took."""
    sampling = _sampling(locals())
    SamplingParams(**sampling)  # refused before anything is loaded
    named, prompt = _model_and_prompt(words or [])
    target = named or target
    text = _prompt(prompt, file)
    opening = opened(trace, **opt.for_loading(locals()))
    with opening as runtime, interruptible(runtime):
        chunks = _answer(runtime, text if raw else _asked(runtime, text, system), sampling, echo=not as_object)
        if as_object:
            write(json.dumps(as_json(runtime, chunks)) + "\n")
        else:
            write("\n")
            say(summary(runtime, chunks[-1].statistics))
        if verbose:
            say(chunks[-1].statistics.policy_reason)
        for line in runtime.explain() if explain else ():
            say(line)
        if chunks[-1].finish_reason == "cancelled":
            raise Cancelled("stopped")


def _model_and_prompt(words: list[str]) -> tuple[str | None, str | None]:
    """`run MODEL PROMPT`, `run MODEL` and `run PROMPT`: what names a model is one. Raises UsageError for more words."""
    first = words[0] if words else ""
    model = first if first in catalog() or first.endswith(".gguf") or (len(words) > 1 and is_name(first)) else None
    rest = words[1:] if model else words
    if len(rest) > 1:
        raise UsageError(f"{rest[1]!r} is one word too many: put the prompt in quotes")
    return model, rest[0] if rest else None


def _sampling(given: dict[str, Any]) -> dict[str, Any]:
    taken = {name: given[name] for name in SamplingParams.__dataclass_fields__ if name in given}
    return taken | {"stop": tuple(given["stop"] or ())}


def _asked(runtime: api.Runtime, text: str, system: str | None) -> str | Sequence[Message]:
    """Messages for the model's template; a model without one, as a note says, goes on with the text."""
    if not runtime.header.chat_template:
        if system:
            raise UsageError("this model has no chat template, so it knows no --system: write it into the prompt")
        return text
    head: list[Message] = [{"role": "system", "content": system}] if system else []
    return [*head, {"role": "user", "content": text}]


def _prompt(prompt: str | None, file: Path | None) -> str:
    if prompt is not None and file is not None:
        raise UsageError("a prompt and --file: give one of them")
    if file is not None:
        try:
            prompt = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read as text ({error}): check --file") from error
    elif prompt is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("no prompt: write one, or use --file, or pipe it in")
        prompt = sys.stdin.read()
    if not prompt.strip():
        raise UsageError("the prompt is empty: write something")
    return prompt


def _answer(runtime: api.Runtime, prompt: str | Sequence[Message], sampling: dict[str, Any], *, echo: bool) -> list[Chunk]:
    stream = pumped(runtime.stream(prompt, **sampling))
    with progress() as status:
        status("reading the prompt")
        chunks = [next(stream)]
    if echo:
        write(chunks[0].text)
    for chunk in stream:
        chunks.append(chunk)
        if echo:
            write(chunk.text)
    return chunks
