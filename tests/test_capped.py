"""The promise from outside: under a kernel cap of budget + 5 % the process lives, the file cold or already cached."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import edgespec
from edgespec.bench import capped

BUDGET = 190 << 20
pytestmark = pytest.mark.usefixtures("kernel_cap")


@pytest.fixture(scope="module")
def large(target_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Twice the cap."""
    from edgespec.bench.inflate import inflate

    path = tmp_path_factory.mktemp("large") / "large.gguf"
    inflate(target_path, path, 400 << 20)
    yield path
    path.unlink()


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("mode", ["off", "auto"])
def test_a_capped_run_lives_and_says_the_same(cached: bool, mode: str, large: Path, drafter_path: Path) -> None:
    if cached:
        large.read_bytes()
    else:
        capped.make_cold(large)
    command = [
        sys.executable, "-m", "edgespec", "run", "What is edgespec?", "--target", str(large), "--drafter", str(drafter_path),
        "--budget", str(BUDGET), "--context", "512", "--speculation", mode, "--max-tokens", "24", "--json", "--strict",
    ]  # fmt: skip
    done = capped.run(command, int(BUDGET * 1.05))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["paging"] == "slots"
    assert done.peak <= int(BUDGET * 1.05)
    assert report["peak_bytes"] == pytest.approx(done.peak, rel=0.1)
    with edgespec.load(budget="1GiB") as small:
        assert report["text"] == small.chat([{"role": "user", "content": "What is edgespec?"}], max_tokens=24).text


TURNS = """
import sys, edgespec
with edgespec.load(sys.argv[1], sys.argv[2], budget=int(sys.argv[3]), context=512, conversations=3) as runtime:
    talks = [[{"role": "user", "content": f"{name} walked to the garden. " * 20}] for name in ("Anna", "Ben", "Clara")]
    for turn in range(2):
        for messages in talks:
            done = runtime.chat(messages, max_tokens=16)
            messages += [{"role": "assistant", "content": done.text}, {"role": "user", "content": "And then?"}]
    print(runtime.paging, done.statistics.cached_tokens)
"""


def test_conversations_that_take_turns_stay_within_the_cap(large: Path, drafter_path: Path) -> None:
    done = capped.run([sys.executable, "-c", TURNS, str(large), str(drafter_path), str(BUDGET)], int(BUDGET * 1.05))
    assert done.returncode == 0, done.stderr
    paging, cached = done.stdout.split()
    assert paging == "slots"
    assert int(cached) > 100
    assert done.peak <= int(BUDGET * 1.05)


def test_a_cap_below_the_budget_is_seen(large: Path) -> None:
    done = capped.run([sys.executable, "-m", "edgespec", "plan", "--target", str(large), "--budget", "50%", "--json"], 400 << 20)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["budget"] <= 200 << 20
