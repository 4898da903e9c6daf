"""Many prompts from a file: nothing lost or answered twice, whenever it is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import edgespec
from edgespec import Runtime
from edgespec.batch import Batch, Task
from edgespec.errors import RuntimeFault, UsageError

LINES: list[dict[str, Any]] = [
    {"id": "a", "prompt": "It was a cold evening, and Anna", "max_tokens": 8},
    {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 16},
    {"prompt": "Hello", "max_tokens": 0},
    {"prompt": "Hello", "messages": []},
    {"prompt": "word " * 3000, "max_tokens": 4},
    {"prompt": "Tom was", "max_tokens": 8, "temperature": "hot"},
    {"prompt": "Tom was", "max_tokens": 8, "temperature": 0.8, "seed": 5},
]


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def small() -> Iterator[Runtime]:
    with edgespec.load(budget="1GiB", context=128) as runtime:
        yield runtime


def test_every_line_is_answered_or_says_why_not(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in.jsonl", LINES), tmp_path / "out.jsonl"
    with edgespec.load(budget="1GiB", context=512) as runtime:
        batch = Batch(source, out)
        done = list(batch.run(runtime))
        assert runtime.generate(LINES[0]["prompt"], max_tokens=8).text == done[0]["text"]
    assert done == read(out)
    assert [line["line"] for line in done] == list(range(len(LINES)))
    assert done[0]["id"] == "a"
    assert done[1]["text"] == "The capital of France is Paris."
    assert [line["line"] for line in done if "error" in line] == [2, 3, 4, 5]
    assert Batch(source, out).done == set(range(len(LINES)))


VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats()
    | st.text(max_size=5)
    | st.just({"role": "user", "content": "Hi"}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
FIELDS = st.sampled_from(["temperature", "stop", "seed", "top_k", "grammar", "logprobs", "speculate", "wait", "unknown", "id"])


@given(st.sampled_from(["prompt", "messages", "neither"]), VALUE, st.dictionaries(FIELDS, VALUE, max_size=2))
def test_any_object_is_answered_or_told_what_is_wrong(small: Runtime, kind: str, asked: Any, more: dict[str, Any]) -> None:
    answer = Task(0, "", {kind: asked, **more, "max_tokens": 1}).answer(small)
    assert ("text" in answer) != bool(answer.get("error"))


def test_output_of_another_input_is_not_gone_on_with(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in.jsonl", LINES[:2]), tmp_path / "out.jsonl"
    out.write_text('{"line": 0, "digest": "another", "text": "x"}\n')
    with pytest.raises(UsageError, match="another input"):
        Batch(source, out)
    source.write_text("{broken\n")
    with pytest.raises(UsageError, match="line 1 is not JSON"):
        Batch(source, tmp_path / "new.jsonl")
    with pytest.raises(UsageError, match="No such file"):
        Batch(tmp_path / "nowhere.jsonl", out)


def test_a_full_disk_ends_it_and_what_was_answered_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = write(tmp_path / "in.jsonl", [LINES[0], LINES[0]]), tmp_path / "out.jsonl"
    with edgespec.load(budget="1GiB", context=512) as runtime:
        answers = Batch(source, out).run(runtime)
        first = next(answers)

        def full(number: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(RuntimeFault, match=r"No space left.*run it again"):
            next(answers)
    assert first in read(out)


def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """Killed at random moments until it is through; the output is that of one undisturbed run."""
    lines: list[dict[str, Any]] = [{"prompt": f"Number {number} was", "max_tokens": 24} for number in range(30)]
    source, out = write(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "edgespec", "batch", str(source), str(out), "--budget", "1GiB", "--context", "512"]
    chance, kills = random.Random(4), 0
    for _ in range(40):
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        acknowledged = len(read(out)) if out.exists() else 0
        deadline = time.monotonic() + chance.uniform(0.9, 1.6)
        while process.poll() is None and time.monotonic() < deadline and kills < 4:
            time.sleep(0.02)
        if kills < 4 and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        _, errors = process.communicate(timeout=120)
        whole = out.read_text().splitlines(keepends=True) if out.exists() else []
        assert sum(line.endswith("\n") for line in whole) >= acknowledged
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, errors
    done = read(out)
    assert [line["line"] for line in done] == list(range(30))
    assert kills > 0
    with edgespec.load(budget="1GiB", context=512) as runtime:
        assert [line["text"] for line in done] == [runtime.generate(line["prompt"], max_tokens=24).text for line in lines]


def test_half_a_line_is_cut_off_and_answered_again(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in.jsonl", LINES[:2]), tmp_path / "out.jsonl"
    with edgespec.load(budget="1GiB", context=512) as runtime:
        list(Batch(source, out).run(runtime))
        whole = out.read_bytes()
        for size in range(len(whole)):
            out.write_bytes(whole[:size])
            batch = Batch(source, out)
            assert len(batch.done) == whole[:size].count(b"\n")
        assert len(list(batch.run(runtime))) == 1
    assert [line["line"] for line in read(out)] == [0, 1]
