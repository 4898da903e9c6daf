"""Stock llama-cpp-python and edgespec under the same cap on the same prompt, one after the other, told live."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from edgespec.bench.capped import CannotCap, Group, group, make_cold
from edgespec.bench.inflate import inflate
from edgespec.bench.prompts import PROMPTS
from edgespec.bench.suite import CONFIGURATIONS, Configuration, Setting, process
from edgespec.cache import cache_folder
from edgespec.engines.llamacpp.model import LlamaModel
from edgespec.errors import RuntimeFault
from edgespec.memory.cpu import usable_threads
from edgespec.modelfile.header import read_model
from edgespec.shipped import embedded_model
from edgespec.speculation.tree import shared_prefix
from edgespec.text.prompt import Prompter

__all__ = ["CAP", "Progress", "cap_or_reason", "pair", "race", "verdict"]

TARGET_BYTES, DRAFTER_BYTES, CAP = 1000 * 10**6, 80 * 10**6, 620 << 20
_CONTEXT, _TOKENS = 256, 32


@dataclass
class Progress:
    """One runner as it goes: `usage` in bytes of `cap`, 0 where it cannot be told."""

    name: str
    cap: int
    tokens: list[int] = field(default_factory=list)
    usage: int = 0
    began: float = 0.0  # when the first token came
    ended: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens after the first per second."""
        spent = (self.ended or time.perf_counter()) - self.began
        return (len(self.tokens) - 1) / spent if self.began and len(self.tokens) > 1 else 0.0


@contextmanager
def pair(say: Callable[[str], None]) -> Iterator[tuple[Path, Path]]:
    """The embedded pair inflated, target and drafter, in the cache; gone at the end."""
    with tempfile.TemporaryDirectory(prefix="demo-", dir=cache_folder()) as folder:
        made = []
        for role, size in (("target", TARGET_BYTES), ("drafter", DRAFTER_BYTES)):
            say(f"inflating the embedded {role} to {size / 1e6:.0f} MB, same function")
            path = Path(folder) / f"{role}.gguf"
            inflate(embedded_model(role), path, size)
            made.append(path)
        yield made[0], made[1]


def race(target: Path, drafter: Path, show: Callable[[list[Progress]], None], *, capped: bool) -> list[Progress]:
    """Run both; `show` is called several times a second. Raises RuntimeFault when one of them fails, CannotCap."""
    helper = LlamaModel(read_model(drafter), None, threads=1)
    prompt = tuple(Prompter(read_model(target)).tokens(PROMPTS[0], helper.tokenizer))
    helper.close()
    setting = Setting(target, drafter, (prompt,), (CAP,), _CONTEXT, usable_threads(), _TOKENS, 1)
    runners = [Progress("stock mmap", CAP), Progress("edgespec", CAP)]
    for runner, name in zip(runners, ("stock", "auto"), strict=True):
        make_cold(target, drafter)
        with group(CAP) if capped else nullcontext() as made:
            _run(setting, CONFIGURATIONS[name], runner, made, lambda: show(runners))
    return runners


def _run(setting: Setting, configuration: Configuration, runner: Progress, made: Group | None, show: Callable[[], None]) -> None:
    command = process(configuration)
    job = json.dumps(setting.job(configuration, CAP) | {"live": True})
    command = made.command(command) if made else command
    pipe = subprocess.PIPE
    running = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    reader = threading.Thread(target=_listen, args=(running, job, runner), daemon=True)
    reader.start()
    try:
        while reader.is_alive():
            runner.usage = made.usage if made else 0
            show()
            reader.join(0.2)
        errors = running.stderr.read() if running.stderr else ""
        if running.wait():
            raise RuntimeFault(f"{runner.name} ended with {running.returncode}: {errors.strip()[-300:]}")
    finally:
        running.kill()
        running.wait()
    show()


def _listen(running: subprocess.Popen[str], job: str, runner: Progress) -> None:
    """Hand over the job, then collect the tokens as they come."""
    assert running.stdin is not None
    assert running.stdout is not None
    try:
        running.stdin.write(job)
        running.stdin.close()
    except BrokenPipeError:
        return  # it ended before it listened; its exit code tells
    for line in running.stdout:
        made = json.loads(line).get("made")
        if made:
            runner.began = runner.began or time.perf_counter()
            runner.tokens += made
            runner.ended = time.perf_counter()


def verdict(stock: Progress, ours: Progress) -> str:
    """One line: how much faster, and whether the text is the same."""
    shared = min(len(stock.tokens), len(ours.tokens))
    same = shared_prefix(stock.tokens, ours.tokens)
    text = "the same text" if same == shared else f"the same text for {same} of {shared} tokens"
    return f"edgespec {ours.rate:.1f} tokens/s, stock mmap {stock.rate:.1f}: {ours.rate / max(stock.rate, 1e-9):.1f}x, {text}"


def cap_or_reason() -> str | None:
    """Why no cap can be enforced here, or None."""
    try:
        with group(CAP):
            return None
    except (CannotCap, OSError) as reason:
        return str(reason)
