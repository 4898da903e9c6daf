"""Every configuration on the same prompts, pair, cap and threads, in rounds, every start cold.

A round runs all configurations one after another, so that a slow minute of a shared disk hits all of them. Work is
counted in tokens of the same text: what a configuration says is compared with what the first one said.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from edgespec.bench.capped import Group, group, make_cold
from edgespec.bench.server import run_server
from edgespec.errors import EdgespecError, RuntimeFault

__all__ = ["CONFIGURATIONS", "Configuration", "Setting", "best_draft_length", "own_cache", "process", "run_suite"]

_TIMEOUT = 1800.0
_OVERHEAD = 1.02  # of the cap over the budget: page tables and what the kernel keeps for the process
_DRAFT_LENGTHS = (2, 4, 8, 16)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Configuration:
    """`nodes` is the fixed size of a tree or chain, for the server its draft length; `options` are others of `edgespec.load`."""

    name: str
    engine: Literal["stock", "server", "edgespec"]
    speculation: str = "off"
    nodes: int = 15
    options: Mapping[str, Any] = field(default_factory=dict)


CONFIGURATIONS = {
    one.name: one
    for one in (
        Configuration("stock", "stock"),
        Configuration("llama-server", "server", "chain", 8),
        Configuration("off", "edgespec"),
        Configuration("chain", "edgespec", "chain"),
        Configuration("tree", "edgespec", "tree"),
        Configuration("llmcad", "edgespec", "llmcad"),
        Configuration("auto", "edgespec", "auto"),
    )
}


@dataclass(frozen=True)
class Setting:
    """What is the same for all: sizes in bytes, `disk` in bytes per second (None: as it is), prompts as tokens.

    `cache` is where edgespec keeps its calibration (None: the user's).
    """

    target: Path
    drafter: Path
    prompts: tuple[tuple[int, ...], ...]
    caps: tuple[int, ...]
    context: int
    threads: int
    max_tokens: int
    rounds: int
    server: Path | None = None
    disk: int | None = None
    cache: Path | None = None

    def job(self, configuration: Configuration, cap: int, prompts: int | None = None) -> dict[str, Any]:
        """What a process is told on stdin."""
        drafts = configuration.speculation != "off"
        return {
            "target": str(self.target), "drafter": str(self.drafter) if drafts else None, "budget": int(cap / _OVERHEAD),
            "context": self.context, "threads": self.threads, "max_tokens": self.max_tokens, "tokens": self.prompts[:prompts],
            "speculation": configuration.speculation, "nodes": configuration.nodes, "options": dict(configuration.options),
        }  # fmt: skip


@contextmanager
def own_cache(setting: Setting) -> Iterator[Setting]:
    """The same with a cache of its own where the disk is slowed down: the calibration of the real disk does not hold there."""
    if setting.disk is None:
        yield setting
        return
    with tempfile.TemporaryDirectory(prefix="edgespec-bench-") as cache:
        yield replace(setting, cache=Path(cache))


def run_suite(setting: Setting, configurations: Sequence[Configuration], say: Say) -> Iterator[dict[str, Any]]:
    """One record per run, as it is done; a run that fails is recorded with its error."""
    for number in range(setting.rounds):
        for cap in setting.caps:
            for configuration in configurations:
                record = {"round": number + 1, "cap": cap, "name": configuration.name} | _measured(setting, configuration, cap)
                rate = record.get("tokens_per_second")
                outcome = f"{rate:.2f} tokens/s" if rate else record.get("error", "failed")
                say(f"round {number + 1}, cap {cap >> 20} MiB, {configuration.name}: {outcome}")
                yield record


def best_draft_length(setting: Setting, cap: int, say: Say) -> int:
    """The server's best draft length for the first prompt at this cap, each tried once."""
    rates = {}
    for length in _DRAFT_LENGTHS:
        record = _measured(setting, Configuration("llama-server", "server", "chain", length), cap, prompts=1)
        rates[length] = record.get("tokens_per_second", 0.0)
        say(f"cap {cap >> 20} MiB, llama-server with drafts of {length}: {rates[length]:.2f} tokens/s")
    return max(rates, key=lambda length: rates[length])


def _measured(setting: Setting, configuration: Configuration, cap: int, prompts: int | None = None) -> dict[str, Any]:
    make_cold(setting.target, setting.drafter)
    job = setting.job(configuration, cap, prompts)
    try:
        with group(cap, disk=setting.target, bytes_per_second=setting.disk) as made:
            result = _result(setting, configuration, job, made)
            result |= {"peak": made.peak, "reclaims": made.failures, "nodes": configuration.nodes}
    except EdgespecError as error:
        return {"error": str(error)}
    generated = sum(len(tokens) - 1 for tokens in result["tokens"])
    return result | {"tokens_per_second": generated / result["seconds"]["decode"], "generated": generated}


def process(configuration: Configuration) -> list[str]:
    """The command that takes a job on stdin."""
    module = "edgespec.bench.stock" if configuration.engine == "stock" else "edgespec.bench.ours"
    return [sys.executable, "-m", module]


def _result(setting: Setting, configuration: Configuration, job: dict[str, Any], made: Group) -> dict[str, Any]:
    if configuration.engine == "server":
        if not setting.server:
            raise RuntimeFault("no server was named: build one with scripts/build_server.sh and name it with --server")
        return run_server(setting.server, job, made)
    done = subprocess.run(
        made.command(process(configuration)), input=json.dumps(job), capture_output=True, text=True, timeout=_TIMEOUT,
        env=os.environ | ({"EDGESPEC_CACHE": str(setting.cache)} if setting.cache else {}),
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise RuntimeFault(f"{configuration.name} ended with {done.returncode}: {last[-300:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
