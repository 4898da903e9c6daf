"""Tokens per second under a kernel memory cap: edgespec against stock llama-cpp-python, in rounds, every start cold.

python scripts/bench.py --target T.gguf --drafter D.gguf --out docs/paging.json

Each round runs every configuration once per cap, one after another, so that a slow minute of a shared disk hits all.
Figures are medians over the rounds; the cap is the kernel's, the drafter is inside it, the budget is cap / 1.02.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

import capped

# A story the drafter knows well, and documentation it half knows. Plain decoding takes the same time for both.
STORY = "Tell me a short story about Anna."
DOCUMENTATION = (
    "class socketserver.BaseServer\n\nBase class for server classes.\n\nMethods for the caller:\n\n"
    "- __init__(server_address, RequestHandlerClass)\n- serve_forever(poll_interval=0.5)\n- shutdown()\n"
)
MODES = ("stock", "off", "chain", "tree", "auto", "tree documentation", "auto documentation")


def command(mode: str, args: argparse.Namespace, cap: int) -> list[str]:
    mode, _, text = mode.partition(" ")
    if mode == "stock":
        chat = f"<|user|>{STORY}<|end|><|assistant|>"
        return [
            sys.executable,
            "scripts/stock.py",
            str(args.target),
            chat,
            "--max-tokens",
            str(args.stock_tokens),
            "--context",
            str(args.context),
        ]
    prompt = [DOCUMENTATION, "--raw"] if text else [STORY]
    drafter = ["--drafter", str(args.drafter)] if mode != "off" else []
    return [
        sys.executable, "-m", "edgespec", "run", *prompt, "--target", str(args.target), *drafter, "--strict", "--json",
        "--budget", str(int(cap / 1.02)), "--context", str(args.context), "--max-tokens", str(args.tokens), "--speculation", mode,
    ]  # fmt: skip


def measure(mode: str, args: argparse.Namespace, cap: int) -> dict[str, Any]:
    capped.make_cold(args.target, args.drafter)
    done = capped.run(command(mode, args, cap), cap)
    if done.returncode:
        print(f"{mode} at {cap >> 20} MiB failed ({done.returncode}): {done.stderr[-300:]}", file=sys.stderr)
        return {"mode": mode, "cap": cap, "failed": done.returncode}
    return {"mode": mode, "cap": cap, "peak": done.peak, **json.loads(done.stdout.splitlines()[-1])}


def table(runs: list[dict[str, Any]], caps: list[int], size: int) -> list[str]:
    lines = [
        "| cap | configuration | tokens/s | range | against stock | tokens/pass | paged/pass | peak/cap |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cap in caps:
        good = {m: [r for r in runs if r["mode"] == m and r["cap"] == cap and "failed" not in r] for m in MODES}
        base = statistics.median(r["tokens_per_second"] for r in good["stock"]) if good["stock"] else float("nan")
        for mode, rows in good.items():
            if not rows:
                continue
            rates = sorted(r["tokens_per_second"] for r in rows)
            middle = statistics.median(rates)
            per_pass = statistics.median(r.get("tokens_per_pass", 1.0) for r in rows)
            paged = statistics.median(r.get("bytes_paged", 0) / r.get("passes", 1) for r in rows) / 1e6
            lines.append(
                f"| {cap / size:.0%} | {mode} | {middle:.2f} | {rates[0]:.2f}-{rates[-1]:.2f} | {middle / base:.1f}x "
                f"| {per_pass:.2f} | {paged:.0f} MB | {max(r['peak'] for r in rows) / cap:.2f} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="a .json file; a table with the same name and .md goes beside it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--caps", type=float, nargs="+", default=[0.88, 0.60, 0.38], help="shares of the target's file size")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--stock-tokens", type=int, default=16)
    parser.add_argument("--modes", nargs="+", default=list(MODES))
    args = parser.parse_args()
    size = args.target.stat().st_size
    caps = [int(share * size) for share in args.caps]
    runs = []
    for number in range(args.rounds):
        for cap in caps:
            for mode in args.modes:
                runs.append(measure(mode, args, cap))
                rate = runs[-1].get("tokens_per_second", 0)
                print(f"round {number + 1}, cap {cap >> 20} MiB, {mode}: {rate:.2f} tokens/s", file=sys.stderr, flush=True)
    about = {
        "target_bytes": size, "drafter_bytes": args.drafter.stat().st_size, "context": args.context, "enforced_by": capped.how(),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} CPUs, Linux {platform.release()}",
    }  # fmt: skip
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"about": about, "runs": runs}, indent=1) + "\n")
    text = "\n".join(table(runs, caps, size)) + "\n"
    args.out.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
