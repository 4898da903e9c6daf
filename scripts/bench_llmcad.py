"""What LLMCad's rule is worth beside other ways to size a draft, and what each part of its method is worth.

    python scripts/bench_llmcad.py --target T.gguf --drafter D.gguf --out docs/bench-llmcad.json

Processes of their own under kernel memory caps, every start cold; a round runs all configurations one after the other. The
drafter alone guesses. Its rule decides how far drafts go (`--speculation llmcad`): without trees it drafts chains, without the
fallback a fixed number of nodes, without the pipeline nothing while the target waits for the disk.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgespec.bench import capped
from edgespec.bench.prompts import PROMPTS
from edgespec.bench.suite import CONFIGURATIONS, Configuration, Setting, run_suite
from edgespec.cli.console import say
from edgespec.engines.llamacpp.library import engine_version
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.memory.cpu import usable_threads
from edgespec.modelfile.header import check_pair, read_model
from edgespec.text.prompt import Prompter

Record = dict[str, Any]
ROWS = {
    "stock": "stock",
    "off": "no drafts",
    "chain": "chain of fixed size",
    "tree": "tree of fixed size (LLMCad without fallback)",
    "auto": "auto",
    "llmcad": "LLMCad",
    "no tree": "LLMCad without trees",
    "no pipeline": "LLMCad without pipeline",
}
SHARES = (0.65, 0.38)  # of the target's file, as caps
BASES = ("off", "llmcad")
HEADER = (
    "| cap | configuration | tokens/s | x no drafts | range | x LLMCad | tokens/pass | nodes/pass | drafted ahead/pass "
    "| of these kept |\n" + "|---" * 10 + "|"
)


def configurations(nodes: int, *, stock: bool) -> list[Configuration]:
    alone: dict[str, Any] = {"stages": ["drafter"]}
    parts = {"no tree": {"branching": False}, "no pipeline": {"draft_ahead": False}}
    ours = [Configuration(name, "edgespec", name, nodes, alone) for name in ("off", "chain", "tree", "auto", "llmcad")]
    ours += [Configuration(name, "edgespec", "llmcad", nodes, alone | options) for name, options in parts.items()]
    return [CONFIGURATIONS["stock"], *ours] if stock else ours


def setting(args: argparse.Namespace) -> Setting:
    header, threads = read_model(args.target), usable_threads()
    check_pair(header, read_model(args.drafter))
    helper, prompter = LlamaModel(read_model(args.drafter), None, threads=threads), Prompter(header)
    prompts = tuple(tuple(prompter.tokens(prompt, helper.tokenizer)) for prompt in PROMPTS[: args.prompts])
    helper.close()
    caps = tuple(int(share * args.target.stat().st_size) for share in SHARES)
    return Setting(args.target, args.drafter, prompts, caps, args.context, threads, args.max_tokens, args.rounds)


def table(records: Sequence[Record], size: int) -> Iterator[str]:
    """Medians over the rounds; ratios are those of the same round. Of nodes drafted ahead those of a guess that held are kept."""
    yield HEADER
    for cap, name in dict.fromkeys((record["cap"], record["name"]) for record in records):
        runs = [one for one in records if (one["cap"], one["name"]) == (cap, name)]
        good = [one for one in runs if "tokens_per_second" in one]
        shown = f"| {cap / size:.0%} | {ROWS[name]} |"
        if not good:
            yield f"{shown} failed: {runs[0]['error']} |" + " |" * 7
            continue
        against = [[one["tokens_per_second"] / rate for one in good if (rate := rate_of(records, one, base))] for base in BASES]
        plain, llmcad = (f"{statistics.median(ratios):.2f}" if ratios else "-" for ratios in against)
        range_ = f"{min(against[0]):.2f}-{max(against[0]):.2f}" if against[0] else "-"
        rate = statistics.median(one["tokens_per_second"] for one in good)
        yield f"{shown} {rate:.2f} | {plain} | {range_} | {llmcad} | {counts(good)} |"


def rate_of(records: Sequence[Record], like: Record, name: str) -> float | None:
    """Of another configuration in the same round under the same cap; None where it failed."""
    place = (like["round"], like["cap"], name)
    return next((one.get("tokens_per_second") for one in records if (one["round"], one["cap"], one["name"]) == place), None)


def counts(runs: Sequence[Record]) -> str:
    if not all(run.get("passes") for run in runs):
        return "- | - | - | -"
    names = ("generated", "passes", "drafted", "drafted_ahead", "kept_ahead")
    generated, passes, drafted, ahead, kept = (sum(run[name] for run in runs) for name in names)
    share = f"{kept / ahead:.0%}" if ahead else "-"
    return f"{generated / passes:.2f} | {drafted / passes:.1f} | {ahead / passes:.1f} | {share}"


def about(given: Setting, nodes: int) -> Record:
    return {
        "nodes": nodes,
        "target_bytes": given.target.stat().st_size, "drafter_bytes": given.drafter.stat().st_size, "context": given.context,
        "max_tokens": given.max_tokens, "prompts": len(given.prompts), "rounds": given.rounds, "enforced_by": capped.how(),
        "engine": engine_version(), "machine": f"{platform.machine()}, {given.threads} threads, {platform.release()}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("bench-llmcad.json"), help="where the records go")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--nodes", type=int, default=15, help="of drafts of fixed size")
    parser.add_argument("--stock", action="store_true", help="run stock llama-cpp-python too")
    args = parser.parse_args()
    given = setting(args)
    known = about(given, args.nodes)  # refused now where no cap can be set
    records = list(run_suite(given, configurations(args.nodes, stock=args.stock), say))
    args.out.write_text(json.dumps({"about": known, "records": records}, indent=1) + "\n")
    print("\n".join(table(records, known["target_bytes"])))


if __name__ == "__main__":
    main()
