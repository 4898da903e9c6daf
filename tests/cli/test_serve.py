"""The server as people start it."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest


def start(*options: str) -> tuple[subprocess.Popen[str], str]:
    """A server on a free port, and its address."""
    command = [sys.executable, "-m", "edgespec", "serve", "--port", "0", "--budget", "1GiB", "--context", "512", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "listening on" in line:
            return process, line.split()[2]
    raise AssertionError("it ended")


def end(process: subprocess.Popen[str], number: int = signal.SIGINT) -> int:
    process.send_signal(number)
    assert process.stderr is not None
    rest = process.stderr.read()
    process.stderr.close()
    code = process.wait(timeout=30)
    assert "Traceback" not in rest, rest
    return code


def test_without_names_it_serves_the_embedded_pair_and_ends_with_ctrl_c() -> None:
    process, address = start()
    body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}
    answer = httpx2.post(f"{address}/v1/chat/completions", json=body, timeout=60).json()
    assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."
    assert answer["model"] == "edgespec"
    assert "<title>edgespec</title>" in httpx2.get(address).text
    assert end(process) in (0, 130)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_in_the_middle_of_an_answer(number: int, inflated_path: Path) -> None:
    process, address = start("--target", str(inflated_path))
    body = {"prompt": "Once", "max_tokens": 400, "temperature": 1.5, "stream": True}
    with httpx2.stream("POST", f"{address}/v1/completions", json=body, timeout=60) as response:
        lines = response.iter_lines()
        assert json.loads(next(lines).removeprefix("data: "))["model"] == inflated_path.stem
        began = time.monotonic()
        end(process, number)
        assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (["--host", "0.0.0.0"], 2, "--api-key"),
        (["--host", "256.0.0.1"], 2, "--api-key"),
        (["--budget", "10MiB"], 4, "minimum"),
        (["--target", "/nowhere.gguf"], 3, "no such file"),
    ],
)
def test_it_refuses_to_start_with_a_reason(options: list[str], code: int, reason: str) -> None:
    command = [sys.executable, "-m", "edgespec", "serve", "--port", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_said_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "edgespec", "serve", "--port", port, "--target", "/nowhere.gguf"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "choose another --port" in done.stderr
