"""The bench's own arithmetic and its processes, on a small model; nothing is timed."""

import json
from pathlib import Path

import pytest

from edgespec.bench import capped
from edgespec.bench.agreement import agreement
from edgespec.bench.report import plots, table
from edgespec.bench.suite import CONFIGURATIONS, Setting, run_suite
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.modelfile.header import read_model

CAP = 200 << 20


def record(name: str, rate: float, number: int = 1, **more: object) -> dict[str, object]:
    seconds = {
        "decode": 2.0,
        "draft": 0.2,
        "wait": 0.5,
        "idle": 0.1,
        "callback": 0.01,
        "prefill": [0.4],
        "load": 1.0,
        "read": 1.0,
    }
    return {
        "round": number, "cap": 100, "name": name, "tokens_per_second": rate, "peak": 90, "generated": 30, "seconds": seconds,
        "nodes": 15, "tokens": [[1, 2]], **more,
    }  # fmt: skip


def test_the_table_has_medians_ranges_ratios_and_losses(tmp_path: Path) -> None:
    records = [record("stock", rate, n) for n, rate in enumerate((1.0, 1.2, 0.9))]
    records += [
        record("auto", rate, n, passes=10, ceiling=12.0, predicted=[9.5, 11.0]) for n, rate in enumerate((9.0, 10.0, 11.0))
    ]
    records += [{"round": 1, "cap": 100, "name": "tree", "error": "killed"}]
    lines = table(records, 200).splitlines()
    assert lines[2].startswith("| 50% | stock | 1.00 | 0.90-1.20 | 1.0x | - | - |")
    assert lines[3].startswith("| 50% | auto | 10.00 | 9.00-11.00 | 10.0x | - | 3.00 | 83% | 9.50-11.00 | 0.40 s | 0.90 |")
    assert lines[4].startswith("| 50% | tree | failed: killed |")
    made = plots(records[:6], 200, tmp_path / "b.json", "toy")
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in made)


def test_a_model_agrees_with_itself(target_path: Path, drafter_path: Path) -> None:
    target, drafter = (LlamaModel(read_model(path), None, threads=2) for path in (target_path, drafter_path))
    prompt = target.tokenizer.encode("It was a cold evening, and Anna")
    with_itself: list[int] = []
    session = target.session(context=256, chunk=64, max_nodes=0)
    from edgespec.speculation.tree import DraftTree

    session.extend(prompt[:-1])
    pending = prompt[-1]
    for _ in range(20):
        following = int(session.score(DraftTree(pending))[0].argmax())
        session.commit([0], [pending])
        with_itself.append(following)
        pending = following
    assert agreement(target, [prompt], [with_itself]) == (20, 20)
    agreed, positions = agreement(drafter, [prompt], [with_itself])
    assert 5 < agreed <= positions == 20
    target.close()
    drafter.close()


def test_every_engine_of_ours_says_what_stock_says(inflated_path: Path, drafter_path: Path) -> None:
    try:
        capped.how()
    except capped.CannotCap as reason:
        pytest.skip(str(reason))
    setting = Setting(inflated_path, drafter_path, ((1, 40, 50, 60),), (CAP,), 256, 2, 12, 1)
    said: list[str] = []
    chosen = [CONFIGURATIONS[name] for name in ("stock", "off", "tree", "auto")]
    records = list(run_suite(setting, chosen, said.append))
    assert [entry.get("error") for entry in records] == [None] * 4, said
    texts = [json.dumps(entry["tokens"][0][:11]) for entry in records]
    assert len(set(texts)) == 1
    assert all(entry["peak"] <= CAP for entry in records)
    assert records[1]["predicted"][0] > 0
    assert records[3]["predicted"][0] <= records[3]["predicted"][1]
