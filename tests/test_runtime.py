import asyncio
import gc
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from budgets import tight_budget

import edgespec
from edgespec import Runtime, errors
from edgespec.loading import Options, prepare
from edgespec.memory.weightfile import WeightFile
from edgespec.types import Speculation

STORY = [{"role": "user", "content": "Tell me a short story."}]


@pytest.fixture(scope="module")
def paged(inflated_path: Path, drafter_path: Path) -> Iterator[Runtime]:
    with edgespec.load(inflated_path, drafter_path, budget=tight_budget(inflated_path, drafter_path), context=512) as runtime:
        assert runtime.paging == "slots"
        yield runtime


def test_the_stated_minimum_works_and_less_does_not(inflated_path: Path) -> None:
    with pytest.raises(errors.BudgetError) as refused:
        prepare(Options(inflated_path, None, 1000, 256))
    minimum = refused.value.minimum
    assert minimum is not None
    assert prepare(Options(inflated_path, None, minimum + (4 << 20), 256)).plan.paging == "slots"
    with pytest.raises(errors.BudgetError):
        prepare(Options(inflated_path, None, minimum - (4 << 20), 256))


def test_everything_fits_the_budget_and_the_check_says_so(paged: Runtime) -> None:
    paged.chat(STORY, max_tokens=20)
    assert paged.plan.total <= paged.plan.budget
    paged.check_budget()


def test_chunks_add_up_to_the_completion(paged: Runtime) -> None:
    whole = paged.chat(STORY, max_tokens=30)
    chunks = list(paged.stream(STORY, max_tokens=30))
    assert "".join(chunk.text for chunk in chunks) == whole.text == paged.detokenize(whole.tokens)
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].statistics.tokens >= len(whole.tokens)
    assert all(len(chunk.tokens) == len(chunk.from_draft) for chunk in chunks)


def test_statistics_are_consistent(paged: Runtime) -> None:
    stats = paged.chat(STORY, max_tokens=30).statistics
    assert stats.tokens == stats.passes + stats.accepted
    assert stats.accepted <= stats.drafted
    assert stats.bytes_paged > 0
    assert stats.tokens_per_second > 0
    assert stats.prompt_tokens == len(paged.prompt_tokens(STORY))


def test_logprobs_are_of_the_emitted_tokens(paged: Runtime) -> None:
    done = paged.chat(STORY, max_tokens=12, logprobs=True)
    assert len(done.logprobs) == len(done.tokens)
    assert all(one.logprob <= 0 and not one.top_logprobs for one in done.logprobs)
    more = paged.chat(STORY, max_tokens=12, logprobs=True, top_logprobs=3)
    for token, one in zip(more.tokens, more.logprobs, strict=True):
        assert one.top_logprobs[0] == (token, one.logprob)  # greedy: the likeliest is what was said
        assert [value for _, value in one.top_logprobs] == sorted((value for _, value in one.top_logprobs), reverse=True)
    plain = paged.chat(STORY, max_tokens=12, logprobs=True, speculate=False)
    assert [one.logprob for one in plain.logprobs] == pytest.approx([one.logprob for one in more.logprobs], abs=0.05)


def test_stop_strings_end_the_text_before_them(paged: Runtime) -> None:
    text = paged.chat(STORY, max_tokens=40).text
    word = text.split()[4]
    stopped = paged.chat(STORY, max_tokens=40, stop=word)
    assert stopped.finish_reason == "stop"
    assert text.startswith(stopped.text)
    assert word not in stopped.text


def test_the_second_turn_pays_only_for_its_own_tokens(paged: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    first = paged.chat(STORY, max_tokens=20)
    passes = paged._target.passes
    turn = [*STORY, {"role": "assistant", "content": first.text}, {"role": "user", "content": "Thanks!"}]
    prompt = paged.prompt_tokens(turn)
    kept = sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(paged._generator.history, prompt, strict=False))
    )
    assert kept >= len(paged.prompt_tokens(STORY))
    seen: list[int] = []
    real = paged._target.extend

    def noted(tokens: Sequence[int]) -> None:
        seen.extend(tokens)
        real(tokens)

    with monkeypatch.context() as patched:
        patched.setattr(paged._target, "extend", noted)
        again = paged.chat(turn, max_tokens=1)
    assert len(seen) <= len(prompt) - kept + 1
    assert paged._target.passes == passes + 1
    paged.chat([{"role": "user", "content": "Hello!"}], max_tokens=4)
    assert paged.chat(turn, max_tokens=1).tokens == again.tokens


def test_cancel_from_another_thread_ends_the_stream_and_the_runtime_stays_usable(paged: Runtime) -> None:
    wanted = paged.chat(STORY, max_tokens=20)
    for delay in (0.0, 0.01, 0.05, 0.2):
        timer = threading.Timer(delay, paged.cancel)
        timer.start()
        chunks = list(paged.stream(STORY, max_tokens=200, temperature=1.0))
        timer.join()
        assert chunks[-1].finish_reason in ("cancelled", "stop", "length")
        assert paged.chat(STORY, max_tokens=20).tokens == wanted.tokens


def test_leaving_a_stream_early_keeps_the_runtime_usable(paged: Runtime) -> None:
    wanted = paged.chat(STORY, max_tokens=20)
    stream = paged.stream(STORY, max_tokens=200)
    next(stream)
    with pytest.raises(errors.Busy):
        next(paged.stream(STORY, wait=False))
    assert isinstance(stream, Generator)
    stream.close()
    assert paged.chat(STORY, max_tokens=20).tokens == wanted.tokens


def test_one_generation_at_a_time_the_second_waits(paged: Runtime) -> None:
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(paged.chat(STORY, max_tokens=10).text)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert len(set(results)) == 1


def test_asyncio_stream_and_its_cancellation(paged: Runtime) -> None:
    async def collect() -> str:
        return "".join([chunk.text async for chunk in paged.astream(STORY, max_tokens=15)])

    async def abandon() -> None:
        async for _ in paged.astream(STORY, max_tokens=400, temperature=1.2):
            await asyncio.sleep(10)

    async def cancelled() -> None:
        task = asyncio.ensure_future(abandon())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    wanted = paged.chat(STORY, max_tokens=15).text
    assert asyncio.run(collect()) == wanted
    asyncio.run(cancelled())
    gc.collect()
    assert paged.chat(STORY, max_tokens=15).text == wanted


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1},
        {"top_p": 0},
        {"max_tokens": 0},
        {"seed": -1},
        {"stop": [""]},
        {"frobnicate": 1},
        {"min_p": float("nan")},
    ],
)
def test_bad_sampling_is_refused(paged: Runtime, options: dict[str, Any]) -> None:
    with pytest.raises(errors.UsageError):
        paged.generate("x", **options)


def test_prompts_that_do_not_fit_are_errors_and_a_full_context_is_said(paged: Runtime) -> None:
    with pytest.raises(errors.ContextFull, match="raise --context"):
        paged.generate("word " * 2000)
    long = "one two three four five six " * 60
    prompt = next(text for cut in range(len(long), 0, -5) if len(paged.prompt_tokens(text := long[:cut])) < 505)
    done = paged.generate(prompt, max_tokens=100, temperature=1.0)
    assert done.finish_reason in ("length", "stop")
    assert len(paged.prompt_tokens(prompt)) + len(done.tokens) <= 513


def test_several_runtimes_share_a_process_and_their_budgets_add_up(
    inflated_path: Path, drafter_path: Path, target_path: Path
) -> None:
    budget = tight_budget(inflated_path, None)
    with edgespec.load(inflated_path, budget=budget, context=256) as one:
        with edgespec.load(target_path, drafter_path, budget="1GiB", context=256) as two:
            assert two.plan.items[0].size > one.plan.items[0].size
            assert one.chat(STORY, max_tokens=12).tokens == two.chat(STORY, max_tokens=12).tokens
        assert one.chat(STORY, max_tokens=5).tokens
    with pytest.raises(errors.RuntimeFault, match="closed"):
        one.generate("x")
    one.close()


def test_bad_arguments_are_refused_before_loading(target_path: Path, drafter_path: Path, tmp_path: Path) -> None:
    for options in (
        {"speculation": "fast"},
        {"threads": 0},
        {"context": 0},
        {"context": 10**9},
        {"draft_nodes": 99},
        {"budget": "lots"},
    ):
        with pytest.raises(errors.UsageError):
            edgespec.load(target_path, drafter_path, **options)
    with pytest.raises(errors.UsageError, match="without a target"):
        edgespec.load(None, drafter_path)
    with pytest.raises(errors.ModelNotFound):
        edgespec.load(tmp_path / "none.gguf")


def test_without_a_target_the_embedded_pair_runs_resident_and_says_so() -> None:
    with edgespec.load(budget="1GiB") as runtime:
        assert runtime.paging == "resident"
        assert any("ships with edgespec" in note for note in runtime.notes)


@pytest.mark.parametrize("ending", ["", "stream.close(); runtime.close()", "del runtime", "next(stream)", "del stream"])
def test_exit_without_close_does_not_crash(inflated_path: Path, drafter_path: Path, ending: str) -> None:
    program = (
        "import edgespec\n"
        f"runtime = edgespec.load({str(inflated_path)!r}, {str(drafter_path)!r}, budget='150MiB', context=256)\n"
        "assert runtime.paging == 'slots'\n"
        f"stream = runtime.stream('Hello', max_tokens=50)\nnext(stream)\n{ending}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.3])
def test_exit_while_another_thread_generates_does_not_crash(inflated_path: Path, drafter_path: Path, delay: float) -> None:
    program = (
        "import edgespec, threading, time\n"
        f"runtime = edgespec.load({str(inflated_path)!r}, {str(drafter_path)!r}, budget='150MiB', context=256)\n"
        "threading.Thread(target=lambda: runtime.generate('Hello', max_tokens=200, temperature=2.0), daemon=True).start()\n"
        f"time.sleep({delay})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_busy_python_thread_does_not_stall_a_sweep(paged: Runtime) -> None:
    """Only that it works; how fast is measured by scripts/bench_python.py."""
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        started = time.monotonic()
        assert paged.chat(STORY, max_tokens=10).tokens
        assert time.monotonic() - started < 60
    finally:
        stop.set()
        thread.join()


def _slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    piece = WeightFile._piece

    def slowly(self: WeightFile, file: int, into: memoryview, offset: int, wanted: int) -> int:
        time.sleep(0.01)
        return piece(self, file, into, offset, wanted)

    monkeypatch.setattr(WeightFile, "_piece", slowly)


@pytest.mark.parametrize("mode", ["tree", "chain", "auto", "llmcad"])
def test_drafting_in_stalls_leaves_the_text_as_it_is(paged: Runtime, mode: Speculation, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = paged._loaded.prepared
    assert prepared.drafter is not None
    files = Path(prepared.target.path), Path(prepared.drafter.path)
    wanted = paged.chat(STORY, max_tokens=40)
    _slow_disk(monkeypatch)
    budget = tight_budget(*files)
    with edgespec.load(*files, budget=budget, context=512, speculation=mode) as runtime:
        done = runtime.chat(STORY, max_tokens=40)
    assert done.text == wanted.text
    assert done.statistics.drafted_ahead > 0
    assert 0 <= done.statistics.kept_ahead <= done.statistics.drafted_ahead
    assert done.statistics.idle_seconds > 0


def test_cancel_in_the_middle_of_a_stall_stops_at_once(paged: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = paged.chat(STORY, max_tokens=12).text
    _slow_disk(monkeypatch)
    threading.Timer(0.5, paged.cancel).start()
    chunks = list(paged.stream(STORY, max_tokens=400, temperature=1.0))
    assert chunks[-1].finish_reason == "cancelled"
    monkeypatch.undo()
    assert paged.chat(STORY, max_tokens=12).text == wanted


def test_tokens_can_be_the_prompt(paged: Runtime) -> None:
    tokens = paged.prompt_tokens(STORY)
    assert paged.generate(tokens, max_tokens=8).text == paged.chat(STORY, max_tokens=8).text
    with pytest.raises(errors.UsageError, match="outside the vocabulary"):
        paged.generate([1, 10**6])


def test_quantized_keys_shrink_the_cache(target_path: Path) -> None:
    with edgespec.load(target_path, budget="1GiB", context=1024, kv_type="q8_0") as small:
        assert small.plan.kv_type == "q8_0"
        assert small.chat(STORY, max_tokens=8).tokens
        sizes = {item.name: item.size for item in small.plan.items}
    with edgespec.load(target_path, budget="1GiB", context=1024) as large:
        assert sizes["target, KV cache"] < {item.name: item.size for item in large.plan.items}["target, KV cache"]
