"""Does a plan say what is really held? ``python scripts/report_memory.py [TARGET [DRAFTER]] [--context 1024]``

At three budgets, from the refused minimum to all resident, a child fills its context under a kernel cap of budget + 5 %:
the plan's total against the most that the kernel counted for the process, code included. Page cache that was only read through
is not: the kernel drops it when it is in the way. Then the least cap is sought under which the least plan still runs; pages of
code, which the kernel may have charged to another process, are added to it.

``--sweep 20MiB`` runs every such budget from the minimum to all resident instead, and compares texts with those of runs
without guesses: weights that are paged are computed as they are in the file, resident ones as the engine lays them out, and the
two kinds of kernels round differently. How many texts are then other than the resident run's is counted, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import psutil

import edgespec
from edgespec.bench import capped
from edgespec.errors import BudgetError
from edgespec.memory.budget import format_size, high_water, parse_size
from edgespec.types import SamplingParams

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
SAMPLINGS: list[dict[str, Any]] = [{}, {"temperature": 0.8, "seed": 1, "logprobs": True, "top_logprobs": 5}]
TEXT = "The river had risen overnight, and by morning the lower road was gone. "
TOKENS = 48
AMPLE, NO_CAP = "50%", 1 << 40
SLACK = 12 << 20  # processes differ by less, those included that measure this machine's speeds first


def child(job: dict[str, Any]) -> dict[str, Any]:
    """What one process makes of a budget: its plan and its peak, or the least budget."""
    try:
        runtime = edgespec.load(
            job["target"], job["drafter"], budget=job["budget"], context=job["context"], speculation=job["mode"],
            draft_nodes=32, pages="off", strict=True,
        )  # fmt: skip
    except BudgetError as error:
        return {"minimum": error.minimum}
    with runtime:
        plan, said = runtime.plan, runtime.tokenize(TEXT * job["context"], bos=True)
        prompts = [said[start : start + length] for start, length in ((0, 16), (3, plan.context - TOKENS - 2)) for _ in SAMPLINGS]
        texts = [
            runtime.generate(prompt, max_tokens=TOKENS, **options).tokens
            for prompt, options in zip(prompts, SAMPLINGS * 2, strict=True)
        ]
        streamed = f"{len(plan.streamed)} of {plan.segments} segments stream" if plan.streamed else plan.paging
        return {
            "total": plan.total, "minimum": plan.minimum, "peak": high_water(), "code": psutil.Process().memory_info().shared,
            "prompts": prompts, "texts": texts,
            "paging": plan.paging, "how": streamed, "passes": f"{plan.chunk} tokens, {plan.max_nodes} nodes",
        }  # fmt: skip


def run(job: dict[str, Any], cap: int) -> dict[str, Any] | None:
    """The child's result, and the kernel's peak of its group; None where it did not live."""
    done = capped.run([sys.executable, __file__, "--child", json.dumps(job)], cap)
    return json.loads(done.stdout) | {"kernel": done.peak} if done.returncode == 0 else None


def living(job: dict[str, Any], cap: int) -> dict[str, Any]:
    done = run(job, cap)
    assert done, f"a budget of {job['budget']} was not kept"
    return done


def budgets(job: dict[str, Any]) -> tuple[int, int]:
    """The least, and one that all is resident in."""
    least, whole = living(job | {"budget": 1000}, NO_CAP), living(job | {"budget": AMPLE}, NO_CAP)
    return least["minimum"] + SLACK, whole["total"] + SLACK


def least_cap(job: dict[str, Any], high: int) -> int:
    """Under which the plan of this budget still runs, to two per cent."""
    low = high // 2
    while high - low > high // 50:
        middle = (low + high) // 2
        low, high = (low, middle) if run(job, middle) else (middle, high)
    return high


def report(job: dict[str, Any]) -> None:
    least, whole = budgets(job)
    print("| budget | how | passes | plan | peak | plan / peak | kernel's peak, with page cache |\n|---|---|---|---|---|---|---|")
    for budget in (least, (least + whole) // 2, whole):
        done = living(job | {"budget": budget}, int(budget * 1.05))
        code = done["code"]
        sizes = [format_size(done[name]) for name in ("total", "peak", "kernel")]
        ratio = done["total"] / done["peak"]
        row = (format_size(budget), done["how"], done["passes"], sizes[0], sizes[1], f"{ratio:.3f}", sizes[2])
        print(f"| {' | '.join(row)} |", flush=True)
    needed = least_cap(job | {"budget": least}, least) + code
    print(f"the least plan still runs in {format_size(needed)}, code included: the minimum is {least / needed:.3f} of it")


def references(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By paging, a run without guesses: as the engine lays weights out, and as they are in the file."""
    plain = job | {"mode": "off"}
    least = living(plain | {"budget": 1000}, NO_CAP)["minimum"] + SLACK
    return {done["paging"]: done for done in (living(plain | {"budget": budget}, NO_CAP) for budget in (AMPLE, least))}


def flips(judge: Any, wanted: dict[str, Any], done: dict[str, Any]) -> list[int | None]:
    """For each text the place where it turned at a near-tie. Raises AssertionError for any other difference."""
    texts = zip(done["prompts"], wanted["texts"], done["texts"], SAMPLINGS * 2, strict=True)
    return [judge.flip(prompt, want, have, SamplingParams(**options)) for prompt, want, have, options in texts]


def sweep(job: dict[str, Any], step: int) -> None:
    from parity import Judge

    least, whole = budgets(job)
    wanted = references(job)
    judge = Judge(Path(job["target"]), job["context"])
    print("| budget | how | plan / peak | texts | turned at a near-tie | other than resident |\n|---|---|---|---|---|---|")
    for budget in (*range(least, whole, step), whole):
        done = living(job | {"budget": budget}, int(budget * 1.05))
        assert done["peak"] <= budget, f"{done['peak']} bytes were held of {budget}"
        turned = sum(flip is not None for flip in flips(judge, wanted[done["paging"]], done))
        other = sum(have != want for have, want in zip(done["texts"], wanted["resident"]["texts"], strict=True))
        row = (format_size(budget), done["how"], f"{done['total'] / done['peak']:.3f}", len(done["texts"]), turned, other)
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    judge.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", help="default: the embedded pair")
    parser.add_argument("drafter", nargs="?")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--speculation", default="tree")
    parser.add_argument("--sweep", type=parse_size, help="every so many bytes of budget")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(json.loads(args.child))))
        return
    job = {"target": args.target, "drafter": args.drafter, "context": args.context, "mode": args.speculation}
    if args.sweep:
        sweep(job, args.sweep)
    else:
        report(job)


if __name__ == "__main__":
    main()
