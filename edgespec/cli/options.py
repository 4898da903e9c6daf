"""The options several commands share, each with its EDGESPEC_ environment twin."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from edgespec import types
from edgespec.runtime import load
from edgespec.speculation.retrieval import View
from edgespec.speculation.verify import LOSSY
from edgespec.strategy import VERIFIERS
from edgespec.types import Speculation, Stage

__all__ = [
    "Branching",
    "Budget",
    "Context",
    "Datastore",
    "DraftAhead",
    "DraftCells",
    "DraftNodes",
    "DraftView",
    "Drafter",
    "Explain",
    "File",
    "FrequencyPenalty",
    "Json",
    "KvType",
    "Lossy",
    "MaxTokens",
    "MinP",
    "Mode",
    "Pages",
    "PresencePenalty",
    "Raw",
    "RepeatPenalty",
    "Seed",
    "Stages",
    "Stop",
    "Strict",
    "System",
    "Target",
    "Temperature",
    "Threads",
    "TopK",
    "TopP",
    "Trace",
    "Verbose",
    "Verify",
    "for_loading",
    "option",
    "stage_list",
]


def option(name: str, text: str, *, switch: bool = False, **more: Any) -> typer.models.OptionInfo:
    """An option with its environment twin; a `switch` is on until `--no-name` switches it off; `more` is typer's."""
    made: typer.models.OptionInfo = typer.Option(
        f"--{name}/--no-{name}" if switch else f"--{name}",
        envvar=f"EDGESPEC_{name.upper().replace('-', '_')}", help=text, **more,
    )  # fmt: skip
    return made


def stage_list(text: str | None) -> tuple[str, ...] | None:
    """What --stages was given, checked later."""
    return tuple(name.strip() for name in text.split(",")) if text is not None else None


def for_loading(given: dict[str, Any]) -> dict[str, Any]:
    """Of a command's options those that `edgespec.load` has too, as it takes them."""
    taken = {name: given[name] for name in inspect.signature(load).parameters if name in given}
    return taken | {"stages": stage_list(taken["stages"])}


Target = Annotated[
    str | None,
    option("target", "The large model, a GGUF file or a pulled name; without it, the embedded pair.", metavar="MODEL"),
]
Drafter = Annotated[str | None, option("drafter", "A small model of the same vocabulary.", metavar="MODEL")]
Budget = Annotated[str | None, option("budget", "Memory for the whole process: 2GiB, 600MB, 60%. Default 50% of what is usable.")]
Context = Annotated[int | None, option("context", "Tokens of context. Default: trained, 4096, or what fits.")]
Threads = Annotated[int | None, option("threads", "Threads. Default: what affinity and CPU quota allow.")]
Strict = Annotated[bool, option("strict", "Refuse instead of falling back to plain mmap.")]
Json = Annotated[bool, option("json", "One JSON object on stdout.")]
Verbose = Annotated[bool, option("verbose", "Say what was decided and why.")]
Mode = Annotated[Speculation, option("speculation", "How to draft.")]
Stages = Annotated[
    str | None,
    option("stages", f"Who guesses, of {','.join(get_args(Stage))}. Default: all but layers and self.", metavar="LIST"),
]
Datastore = Annotated[Path | None, option("datastore", "A folder of `edgespec datastore build` to guess from.")]
Verify = Annotated[str, option("verify", f"How guesses are judged, losslessly: {', '.join(VERIFIERS)}.", metavar="NAME")]
Lossy = Annotated[str | None, option("lossy", f"Accept more than the target would say: {', '.join(LOSSY)}.", metavar="NAME")]
DraftView = Annotated[View, option("draft-view", "What of a long context the drafter looks at.")]
DraftCells = Annotated[int, option("draft-cells", "Tokens a view that is not full has.")]
Explain = Annotated[bool, option("explain", "Say who guesses, how guesses are judged, and why.")]
DraftNodes = Annotated[int, option("draft-nodes", "Nodes per tree or chain in the fixed modes, 1 to 32.")]
Branching = Annotated[bool, option("branching", "Whether the drafter grows trees, or chains.", switch=True)]
DraftAhead = Annotated[bool, option("draft-ahead", "Whether to draft while the target waits for the disk.", switch=True)]
Pages = Annotated[types.Pages, option("pages", "Whether repacked weights may be kept on disk where that is faster.")]
KvType = Annotated[types.KvType, option("kv-type", "How the target's keys are cached; below f16 its text may change.")]
Trace = Annotated[Path | None, option("trace", "Write where the time went, for ui.perfetto.dev.")]
MaxTokens = Annotated[int, option("max-tokens", "Most tokens to generate.")]
Temperature = Annotated[float, option("temperature", "0 is greedy.")]
TopK = Annotated[int, option("top-k", "Keep the k likeliest tokens; 0 keeps all.")]
TopP = Annotated[float, option("top-p", "Keep the likeliest tokens of this total probability.")]
MinP = Annotated[float, option("min-p", "Drop tokens below this share of the likeliest one's probability.")]
FrequencyPenalty = Annotated[float, option("frequency-penalty", "Lowers tokens each time they were said lately; -2 to 2.")]
PresencePenalty = Annotated[float, option("presence-penalty", "Lowers tokens that were said lately; -2 to 2.")]
RepeatPenalty = Annotated[float, option("repeat-penalty", "Above 1 discourages repetition.")]
Seed = Annotated[int, option("seed", "Same seed, same text.")]
Stop = Annotated[list[str] | None, option("stop", "End before this text; may be given several times.")]
Load = Annotated[str | None, option("load", "Go on with a saved conversation.", metavar="NAME")]
System = Annotated[str | None, option("system", "A system message.")]
Raw = Annotated[bool, option("raw", "Continue the prompt as plain text, without the chat template.")]
File = Annotated[Path | None, option("file", "Read the prompt from a file.")]
