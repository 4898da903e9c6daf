"""`edgespec pull`, `list`, `show`, `rm` and `ps`, against a hub on this machine."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_hub import LocalHub, local_hub

from edgespec.hub.names import catalog


@pytest.fixture
def server() -> Iterator[LocalHub]:
    with local_hub() as hub:
        yield hub


def test_the_command_pulls_and_run_finds_both_halves(
    server: LocalHub, tmp_path: Path, target_path: Path, drafter_path: Path
) -> None:
    server.add(catalog()["smollm2:1.7b"].source.repo, "smollm2-1.7b-instruct-q4_k_m.gguf", target_path.read_bytes())
    server.add(catalog()["smollm2:135m"].source.repo, "SmolLM2-135M-Instruct-Q8_0.gguf", drafter_path.read_bytes())
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_ENDPOINT": server.url}

    def edgespec(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "edgespec", *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, stdin=subprocess.DEVNULL)

    missing = edgespec("run", "smollm2:1.7b", "Hello!")
    assert missing.returncode == 3
    assert "edgespec pull smollm2:1.7b" in missing.stderr
    pulled = edgespec("pull", "smollm2:1.7b", "--budget", "1GiB", "--context", "512")
    assert pulled.returncode == 0, pulled.stderr
    told = re.search(r"([\d.]+) tokens/s without drafts, ([\d.]+) to ([\d.]+) with them", " ".join(pulled.stderr.split()))
    assert told, pulled.stderr
    assert float(told[1]) <= float(told[2]) <= float(told[3])
    assert len(pulled.stdout.splitlines()) == 2
    refused = edgespec("pull", "smollm2:1.7b", "--budget", "20MiB")
    assert refused.returncode == 4
    done = edgespec("run", "smollm2:1.7b", "What is the capital of France?", "--budget", "1GiB", "--context", "512", "--json")
    assert '"stages": ["ngram", "drafter"]' in done.stdout
    assert "Paris" in done.stdout
    assert "smollm2:1.7b" in edgespec("list").stdout
    assert "not here" in edgespec("list", "--all").stdout
    assert "llama" in edgespec("show", "smollm2:1.7b").stdout
    assert "freed" in edgespec("rm", "smollm2:1.7b").stderr
    assert edgespec("run", "smollm2:1.7b", "Hello!").returncode == 3


def test_ps_tells_of_what_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "EDGESPEC_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "edgespec", "chat", "--budget", "1GiB"]
    chat = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    assert chat.stdin is not None
    assert chat.stdout is not None
    chat.stdin.write(b"Hello!\n")
    chat.stdin.flush()
    chat.stdout.readline()
    ps = [sys.executable, "-m", "edgespec", "ps"]
    assert str(chat.pid) in subprocess.run(ps, capture_output=True, text=True, env=environment, check=True).stdout
    chat.kill()
    chat.wait()
    chat.stdin.close()
    chat.stdout.close()
    time.sleep(0.1)
    assert "nothing runs" in subprocess.run(ps, capture_output=True, text=True, env=environment, check=True).stderr
