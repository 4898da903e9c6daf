"""`edgespec bench`: the same prompts, pair, cap and threads for edgespec and its peers, every start cold."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Annotated, Any

import typer

from edgespec.bench import capped
from edgespec.bench.agreement import agreement
from edgespec.bench.prompts import PROMPTS
from edgespec.bench.report import plots, pyplot, table
from edgespec.bench.suite import CONFIGURATIONS, Configuration, Setting, best_draft_length, own_cache, run_suite
from edgespec.cli import options as opt
from edgespec.cli.console import say, write
from edgespec.engines.llamacpp.library import engine_version
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.errors import UsageError
from edgespec.memory.budget import parse_share, parse_size
from edgespec.memory.cpu import usable_threads
from edgespec.modelfile.header import check_pair, read_model
from edgespec.speculation.tree import shared_prefix
from edgespec.text.prompt import Prompter
from edgespec.types import ModelHeader

__all__ = ["bench"]

_MODES = ",".join(CONFIGURATIONS)
_FEWEST_ROUNDS = 3


def bench(
    target: Annotated[Path, typer.Option("--target", help="The large model (GGUF).")],
    drafter: Annotated[Path, typer.Option("--drafter", help="A small model of the same vocabulary.")],
    out: Annotated[Path, typer.Option("--out", help="Where the records go; table and plots lie beside it.")] = Path("bench.json"),
    caps: Annotated[str, typer.Option("--caps", help="Memory caps, sizes or shares of the target's file.")] = "65%,38%",
    modes: Annotated[str, typer.Option("--modes", help=f"Of {_MODES}.")] = _MODES,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Medians are taken over this many.")] = _FEWEST_ROUNDS,
    max_tokens: opt.MaxTokens = 32,
    context: opt.Context = 512,
    threads: opt.Threads = None,
    server: Annotated[Path | None, typer.Option("--server", help="llama-server, see scripts/build_server.sh.")] = None,
    disk: Annotated[str | None, typer.Option("--disk", help="Slow the disk down to this many bytes a second.")] = None,
    draw: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw PNG plots, with matplotlib.")] = True,
) -> None:
    """Compare edgespec with stock mmap and llama.cpp's server under kernel memory caps."""
    if draw:
        pyplot()  # refused now, not after the last round
    enforced = capped.how()
    header, small = read_model(target), read_model(drafter)
    check_pair(header, small)
    configurations = [_configuration(name.strip(), server) for name in modes.split(",")]
    helper = LlamaModel(small, None, threads=threads or usable_threads())
    prompter = Prompter(header)
    setting = Setting(
        target, drafter, tuple(tuple(prompter.tokens(prompt, helper.tokenizer)) for prompt in PROMPTS), _caps(caps, header),
        context or 512, threads or usable_threads(), max_tokens, rounds, server, parse_size(disk) if disk else None,
    )  # fmt: skip
    with own_cache(setting) as setting:
        records = _all_runs(setting, configurations)
    about = _about(setting, header, enforced) | {"same_text": _same_text(records)} | _agreement(helper, setting, records)
    helper.close()
    out.write_text(json.dumps({"about": about, "records": records}, indent=1) + "\n")
    text = _caption(about) + "\n\n" + table(records, about["target_bytes"])
    out.with_suffix(".md").write_text(text)
    if draw:
        plots(records, about["target_bytes"], out, _caption(about).split(". ")[0])
    write(text)


def _configuration(name: str, server: Path | None) -> Configuration:
    if name not in CONFIGURATIONS:
        raise UsageError(f"{name!r} is no mode: choose from {_MODES}")
    if name == "llama-server" and not (server and os.access(server, os.X_OK)):
        raise UsageError("llama-server needs --server: build it with scripts/build_server.sh, or leave it out of --modes")
    return CONFIGURATIONS[name]


def _caps(text: str, header: ModelHeader) -> tuple[int, ...]:
    size = sum(file.size for file in header.files)
    shares = {cap: parse_share(cap) for cap in text.split(",")}
    return tuple(parse_size(cap) if share is None else int(size * share) for cap, share in shares.items())


def _all_runs(setting: Setting, configurations: list[Configuration]) -> list[dict[str, Any]]:
    """The server runs at the draft length that is best at the first cap."""
    if any(one.engine == "server" for one in configurations):
        length = best_draft_length(setting, setting.caps[0], say)
        peer = Configuration("llama-server", "server", "chain", length)
        configurations = [peer if one.engine == "server" else one for one in configurations]
    return list(run_suite(setting, configurations, say))


def _about(setting: Setting, header: ModelHeader, enforced: str) -> dict[str, Any]:
    return {
        "target": header.name, "target_bytes": sum(file.size for file in header.files),
        "drafter_bytes": setting.drafter.stat().st_size, "context": setting.context, "max_tokens": setting.max_tokens,
        "prompts": len(setting.prompts), "rounds": setting.rounds, "enforced_by": enforced, "disk": setting.disk,
        "engine": engine_version(),
        "machine": f"{platform.machine()}, {setting.threads} threads, {platform.system()} {platform.release()}",
    }  # fmt: skip


def _same_text(records: list[dict[str, Any]]) -> dict[str, str]:
    """Per configuration, how many of its tokens are those of the first one that ran, up to the first difference."""
    good = [record for record in records if "tokens" in record]
    found = {}
    for name in dict.fromkeys(record["name"] for record in good):
        same = total = 0
        for record in (one for one in good if one["name"] == name):
            for ours, theirs in zip(record["tokens"], good[0]["tokens"], strict=True):
                total += min(len(ours), len(theirs))
                same += shared_prefix(ours, theirs)
        found[name] = f"{same} of {total}"
    return found


def _agreement(helper: LlamaModel, setting: Setting, records: list[dict[str, Any]]) -> dict[str, Any]:
    answers = next((record["tokens"] for record in records if "tokens" in record), None)
    if not answers:
        return {"agreement": None}
    agreed, positions = agreement(helper, setting.prompts, answers)
    return {"agreement": agreed / positions, "positions": positions}


def _caption(about: dict[str, Any]) -> str:
    disk = f", disk slowed down to {about['disk'] / 1e6:.0f} MB/s" if about["disk"] else ""
    agreed = f"{about['agreement']:.2f} over {about['positions']} tokens" if about["agreement"] is not None else "unknown"
    return (
        f"{about['target']}: target {about['target_bytes'] / 1e9:.2f} GB, drafter {about['drafter_bytes'] / 1e6:.0f} MB{disk}. "
        f"Greedy agreement {agreed}; context {about['context']}, {about['prompts']} prompts of up to {about['max_tokens']} "
        f"tokens, every start cold, medians of {about['rounds']} rounds. Cap enforced by {about['enforced_by']}, drafter and "
        f"page cache included; {about['machine']}; {about['engine']}."
    )
