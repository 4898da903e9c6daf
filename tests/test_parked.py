"""Conversations that take turns: each pays for its own tokens alone, and says what it would have said by itself."""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from budgets import tight_budget
from counting import processed
from hypothesis import given
from hypothesis import strategies as st

import edgespec
from edgespec import Runtime
from edgespec.engines.fake import FakeModel, FakeSession
from edgespec.errors import EngineError, UsageError
from edgespec.parked import _WORTHWHILE, Parking
from edgespec.speculation.tree import shared_prefix

CONVERSATIONS = [
    [{"role": "user", "content": f"Tell me a short story about {name} and remember the number {number}."}]
    for name, number in (("Anna", 17), ("Ben", 23), ("Clara", 42))
]


class Carried(FakeSession):
    """One whose tokens can be in a file."""

    portable, broken = True, False

    def save(self, path: str, tokens: Sequence[int]) -> int:
        assert self.tokens == list(tokens[: self.length])
        if self.length:
            Path(path).write_text(" ".join(map(str, self.tokens)))
        return self.length

    def load(self, path: str) -> list[int] | None:
        self.rewind(0)
        if self.broken:
            return None
        self.extend([int(word) for word in Path(path).read_text().split()])
        return self.tokens


Kind = TypeVar("Kind", bound=FakeSession)


def made(kind: type[Kind]) -> Kind:
    return kind(FakeModel(), 1 << 20, lambda: None)


STEP = st.tuples(st.integers(0, 4), st.integers(1, 4 * _WORTHWHILE), st.integers(0, 2 * _WORTHWHILE))


@given(st.integers(0, 3), st.lists(STEP, max_size=12), st.booleans())
def test_sessions_go_on_from_the_longest_beginning_there_is(most: int, steps: list[tuple[int, int, int]], broken: bool) -> None:
    parking, target, small, viewed = Parking(most), made(Carried), made(Carried), made(FakeSession)
    sessions: tuple[FakeSession, ...] = (target, small, viewed)
    seen: dict[int, list[int]] = {}
    for place, (who, grown, behind) in enumerate(steps):
        prompt = seen.get(who, [who]) + [1000 * who + 7] * grown
        target.broken = broken and place == len(steps) - 1
        history, files = list(target.tokens), list(parking._parked)
        parking.swap(sessions, history, prompt)
        assert len(parking._parked) <= most
        assert all(session.tokens == prompt[: session.length] for session in sessions)
        best = max((shared_prefix(one.tokens, prompt) for one in files), default=0)
        if not target.broken:
            assert target.length > max(shared_prefix(history, prompt), best - _WORTHWHILE) - 1
        kept = {path for parked in parking._parked for path in parked.paths if path}
        assert kept == set(parking._folder.iterdir() if parking._folder else [])
        seen[who] = prompt
        for session, end in ((target, len(prompt)), (small, max(small.length, len(prompt) - behind)), (viewed, len(prompt))):
            session.extend(prompt[session.length : end])


@pytest.fixture(scope="module")
def alone() -> list[list[str]]:
    """What each conversation says by itself, without trees, whose sizes would move the last bits."""
    said = []
    for conversation in CONVERSATIONS:
        with edgespec.load(budget="1GiB", context=1024, speculation="off") as runtime:
            said.append(talk(runtime, [list(conversation)], turns=2)[0])
    return said


def talk(runtime: Runtime, conversations: list[list[dict[str, str]]], turns: int) -> list[list[str]]:
    """One turn of each after the other."""
    said: list[list[str]] = [[] for _ in conversations]
    for turn in range(turns):
        for place, messages in enumerate(conversations):
            answer = runtime.chat(messages, max_tokens=100).text
            said[place].append(answer)
            messages += [
                {"role": "assistant", "content": answer}, {"role": "user", "content": f"And then? Tell me more, part {turn}."},
            ]  # fmt: skip
    return said


@pytest.fixture
def resident() -> Iterator[Runtime]:
    with edgespec.load(budget="1GiB", context=1024, speculation="off", conversations=3) as runtime:
        yield runtime


def test_turns_cost_their_own_tokens_and_texts_stay(resident: Runtime, alone: list[list[str]]) -> None:
    conversations = [list(conversation) for conversation in CONVERSATIONS]
    first = talk(resident, conversations, turns=1)
    count = processed(resident)
    second = [resident.chat(messages, max_tokens=100) for messages in conversations]
    assert [[one, two.text] for [one], two in zip(first, second, strict=True)] == alone
    whole = sum(len(resident.prompt_tokens(messages)) for messages in conversations)
    answered = sum(done.statistics.tokens for done in second)
    own = 3 * len(resident.tokenize("And then? Tell me more, part 0.")) + 3 * 16  # the frame of a turn is some tokens
    assert count() <= answered + own
    assert whole > 3 * 100 + own  # which were not processed again


def test_a_paged_target_takes_turns_too_and_its_drafter_keeps_up(inflated_path: Path, drafter_path: Path) -> None:
    budget = tight_budget(inflated_path, drafter_path)
    with edgespec.load(inflated_path, drafter_path, budget=budget, context=512, conversations=3, speculation="tree") as runtime:
        assert runtime.paging == "slots"
        conversations = [list(conversation) for conversation in CONVERSATIONS]
        talk(runtime, conversations, turns=1)
        assert len(runtime._generator._parking._parked) == 2
        swapped = [runtime.chat(messages, max_tokens=60).statistics for messages in conversations]
    with edgespec.load(inflated_path, drafter_path, budget=budget, context=512, speculation="tree") as runtime:
        read_again = [runtime.chat(messages, max_tokens=60).statistics for messages in conversations]
    for one, other in zip(swapped, read_again, strict=True):
        assert one.tokens_per_pass > 0.8 * other.tokens_per_pass > 1  # a drafter that lost its place guesses nothing right
        assert one.cached_tokens > 100 > other.cached_tokens


def test_damaged_files_and_full_disks_cost_time_alone(
    resident: Runtime, alone: list[list[str]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    conversations = [list(conversation) for conversation in CONVERSATIONS]
    first = talk(resident, conversations, turns=1)
    for parked in resident._generator._parking._parked:
        for path in filter(None, parked.paths):
            path.write_bytes(path.read_bytes()[:1000])
    with caplog.at_level(logging.WARNING):
        second = [resident.chat(messages, max_tokens=100).text for messages in conversations]
    assert "could not be read back" in caplog.text
    assert [[one, two] for [one], two in zip(first, second, strict=True)] == alone

    def full(path: str, tokens: Sequence[int]) -> int:
        raise EngineError(f"the engine cannot write {path}: free some disk space")

    monkeypatch.setattr(resident._target, "save", full)
    resident._generator._parking._parked.clear()
    assert talk(resident, [list(conversation) for conversation in CONVERSATIONS], turns=2) == alone
    assert "free some disk space" in caplog.text
    assert not resident._generator._parking._parked
    monkeypatch.undo()
    usage = shutil.disk_usage("/")._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    assert talk(resident, [list(conversation) for conversation in CONVERSATIONS], turns=2) == alone
    assert not resident._generator._parking._parked


def test_what_a_killed_process_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path))
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True)
    for pid in (gone.stdout.strip(), str(os.getpid())):
        (tmp_path / f"parked-{pid}-x").mkdir()
        (tmp_path / f"parked-{pid}-x" / "1.kv").touch()
    session = made(Carried)
    session.extend(range(200))
    parking = Parking(1)
    parking.swap([session], list(session.tokens), [5])
    left = {path.name.split("-")[1] for path in tmp_path.glob("parked-*")}
    assert left == {str(os.getpid())}
    del parking
    assert [path.name for path in tmp_path.glob("parked-*")] == [f"parked-{os.getpid()}-x"]


def test_no_conversation_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="conversations=0"):
        edgespec.load(budget="1GiB", conversations=0)
