"""Saved conversations: the next turn pays for its own tokens alone, and nothing that was published is lost."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from counting import processed

import edgespec
from edgespec import Runtime
from edgespec.errors import ModelNotFound, RuntimeFault, UsageError
from edgespec.saved import Conversation, Shelf

TURNS = [
    {"role": "user", "content": "Tell me a short story about Anna."},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": "What is the capital of France?"},
]


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with edgespec.load(budget="1GiB", context=1024) as runtime:
        yield runtime


def talked(runtime: Runtime) -> list[dict[str, str]]:
    first = runtime.chat(TURNS[:1], max_tokens=120)
    return [TURNS[0], {"role": "assistant", "content": first.text}]


def test_the_next_turn_pays_for_its_own_tokens_alone(tmp_path: Path, runtime: Runtime) -> None:
    messages = talked(runtime)
    shelf = Shelf(tmp_path)
    shelf.save("anna", runtime, messages, {"temperature": 0.5})
    wanted = runtime.chat([*messages, TURNS[2]], max_tokens=20).text
    whole = len(runtime.prompt_tokens([*messages, TURNS[2]]))
    with edgespec.load(budget="1GiB", context=1024, speculation="off") as later:
        count = processed(later)
        found = shelf.load("anna", later)
        assert (list(found.messages), found.settings, found.notes) == (messages, {"temperature": 0.5}, ())
        done = later.chat([*found.messages, TURNS[2]], max_tokens=20)
        assert done.text == wanted
        own = whole - found.reused
        assert found.reused > 60
        assert own < 40
        assert count() <= own + done.statistics.tokens + 1
    assert shelf.names() == ["anna"]


def test_another_model_engine_or_damage_means_reading_again(tmp_path: Path, runtime: Runtime, inflated_path: Path) -> None:
    messages = talked(runtime)
    shelf = Shelf(tmp_path)
    shelf.save("anna", runtime, messages, {})
    wanted = runtime.chat([*messages, TURNS[2]], max_tokens=20).text
    with edgespec.load(inflated_path, budget="1GiB", context=1024) as other:
        found = shelf.load("anna", other)
        assert found.reused == 0
        assert "another model" in found.notes[0]
        assert list(found.messages) == messages
    context = next(tmp_path.glob("*.target.kv"))
    data = bytearray(context.read_bytes())
    for damage in (b"", bytes(data[: len(data) // 2]), bytes(data[:-1]) + bytes([data[-1] ^ 1])):
        context.write_bytes(damage)
        found = shelf.load("anna", runtime)
        assert (found.reused, list(found.messages)) == (0, messages)
        assert "missing or damaged" in found.notes[0]
    context.unlink()
    assert shelf.load("anna", runtime).reused == 0
    assert runtime.chat([*messages, TURNS[2]], max_tokens=20).text == wanted


def test_the_drafter_goes_on_too_or_reads_again(tmp_path: Path, runtime: Runtime, inflated_path: Path) -> None:
    messages = talked(runtime)
    shelf = Shelf(tmp_path)
    shelf.save("anna", runtime, messages, {})
    with edgespec.load(budget="1GiB", context=1024) as later:
        small = later._strategy.portable
        assert small is not None
        reused = shelf.load("anna", later).reused
        assert 0 < small.length <= reused  # it may not have read all of the answer yet
        half = next(tmp_path.glob("*.drafter.kv"))
        half.write_bytes(half.read_bytes()[:-1])
        assert shelf.load("anna", later) == Conversation(tuple(messages), {}, reused)
        assert small.length == 0
    with edgespec.load(runtime.header.path, budget="1GiB", context=1024) as alone:
        assert shelf.load("anna", alone).reused == reused
        alone.chat([*messages, TURNS[2]], max_tokens=2)
        shelf.save("anna", alone, messages, {})
        assert [path.name.split(".")[2:] for path in tmp_path.glob("*.kv")] == [["target", "kv"]]


def test_a_damaged_index_is_put_aside(tmp_path: Path, runtime: Runtime) -> None:
    shelf = Shelf(tmp_path)
    shelf.save("anna", runtime, talked(runtime), {})
    index = tmp_path / "anna.json"
    whole = index.read_bytes()
    for damage in (b"", whole[:-1], whole[:40], whole.replace(b"Anna", b"Mary"), b"\x80\x04}."):
        index.write_bytes(damage)
        found = shelf.load("anna", runtime)
        assert found.messages == ()
        assert "put aside as anna.damaged" in found.notes[0]
        assert not index.exists()


@pytest.mark.parametrize("name", ["", "..", "../x", "/etc/x", "a/b", "x" * 65, ".hidden", "a\0b"])
def test_names_stay_on_the_shelf(tmp_path: Path, runtime: Runtime, name: str) -> None:
    for use in (lambda: Shelf(tmp_path).save(name, runtime, [], {}), lambda: Shelf(tmp_path).load(name, runtime)):
        with pytest.raises(UsageError, match="not a name"):
            use()
    with pytest.raises(ModelNotFound, match="no conversation"):
        Shelf(tmp_path).load("unknown", runtime)


def test_an_index_cannot_point_off_the_shelf(tmp_path: Path, runtime: Runtime) -> None:
    import hashlib

    shelf = Shelf(tmp_path / "shelf")
    shelf.save("anna", runtime, talked(runtime), {})
    index = tmp_path / "shelf/anna.json"
    found = json.loads(index.read_bytes().partition(b"\n")[2])
    outside = tmp_path / "outside.kv"
    (tmp_path / "shelf" / found["contexts"]["target"]["file"]).replace(outside)
    found["contexts"]["target"]["file"] = "../outside.kv"
    body = json.dumps(found).encode()
    index.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    assert shelf.load("anna", runtime).reused == 0


def test_a_full_disk_keeps_the_old_one(tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(tmp_path)
    shelf.save("anna", runtime, messages := talked(runtime), {})

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RuntimeFault, match="No space left"):
            shelf.save("anna", runtime, [], {})
    found = shelf.load("anna", runtime)
    assert list(found.messages) == messages
    assert found.reused > 0


SAVER = """
import sys, edgespec
from pathlib import Path
from edgespec.saved import Shelf
with edgespec.load(budget="1GiB", context=1024) as runtime:
    shelf = Shelf(Path(sys.argv[1]))
    for number in range(10000):
        messages = [{"role": "user", "content": f"Say {number}."}]
        answer = runtime.chat(messages, max_tokens=2).text
        shelf.save("loop", runtime, [*messages, {"role": "assistant", "content": answer}], {"number": number})
        print(number, flush=True)
"""


def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path, runtime: Runtime) -> None:
    chance, shelf = random.Random(2), Shelf(tmp_path)
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", SAVER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        said = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        found = shelf.load("loop", runtime)
        assert found.settings["number"] >= int(said[-1]) if said else True
        assert found.reused > 0
    shelf.save("loop", runtime, list(found.messages), {})
    assert len(list(tmp_path.glob("*"))) in (2, 3)  # what the kills left behind is gone
