"""The other peer: llama.cpp's own server with the same drafter, plain HTTP on loopback; `scripts/build_server.sh` builds it."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from edgespec.bench.capped import Group
from edgespec.errors import RuntimeFault

__all__ = ["run_server"]

_PATIENCE = 600.0  # seconds for loading, and for an answer


def run_server(server: Path, job: dict[str, Any], group: Group) -> dict[str, Any]:
    """Start it in `group`, answer the job's prompts one after another, stop it. Raises RuntimeFault when it does not answer."""
    port = _free_port()
    started = time.perf_counter()
    process = subprocess.Popen(group.command(_command(server, job, port)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_up(process, port)
        loaded = time.perf_counter() - started
        answers = [_ask(port, prompt, job["max_tokens"]) for prompt in job["tokens"]]
    finally:
        process.kill()
        process.wait()
    timings = [answer["timings"] for answer in answers]
    return {
        "tokens": [answer["tokens"] for answer in answers],
        "drafted": sum(timing.get("draft_n", 0) for timing in timings),
        "accepted": sum(timing.get("draft_n_accepted", 0) for timing in timings),
        "seconds": {
            "load": loaded,
            "prefill": [timing["prompt_ms"] / 1e3 for timing in timings],
            "decode": sum(timing["predicted_ms"] / 1e3 for timing in timings),
        },
    }


def _command(server: Path, job: dict[str, Any], port: int) -> list[str]:
    """Its best under a cap: mmap, no repacking (it would need the whole model in memory), one slot, no warm-up."""
    command = [
        str(server), "--model", job["target"], "--host", "127.0.0.1", "--port", str(port), "--threads", str(job["threads"]),
        "--ctx-size", str(job["context"]), "--parallel", "1", "--no-repack", "--no-warmup", "--cache-ram", "0", "--no-slots",
    ]  # fmt: skip
    if job["nodes"]:
        drafts = ["--spec-type", "draft-simple", "--spec-draft-n-max", str(job["nodes"]), "--spec-draft-n-min", "0"]
        command += ["--model-draft", job["drafter"], *drafts, "--spec-draft-threads", str(job["threads"])]
    return command


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_up(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeFault(f"the server ended with {process.returncode} while loading: see whether the cap is too small")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeFault(f"the server did not come up within {_PATIENCE:.0f} s: raise the cap")


def _ask(port: int, prompt: list[int], most: int) -> dict[str, Any]:
    body = {"prompt": prompt, "n_predict": most, "temperature": 0, "cache_prompt": False, "return_tokens": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise RuntimeFault(f"the server did not answer ({error}): raise the cap") from error
