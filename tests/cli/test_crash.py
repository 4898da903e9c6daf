"""A process that the engine takes down says so in one line and ends with the signal's own status."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such signals")

ASSERTION = """
from edgespec.engines.llamacpp import crash
from edgespec.engines.llamacpp.library import ggml
crash.watch()
crash.stage("in a pass over a model")
ggml().base.ggml_abort(b"/built/here/ggml-cpu.c", 12, b"GGML_ASSERT(%s) failed\\nmore", b"x == y")
"""


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT])
def test_a_signal_in_mid_answer(number: signal.Signals, inflated_path: Path, drafter_path: Path) -> None:
    words = ["run", "Tell me a story.", "--target", str(inflated_path), "--drafter", str(drafter_path), "--budget", "160MiB"]
    command = [sys.executable, "-m", "edgespec", *words, "--context", "512", "--temperature", "1", "--max-tokens", "400"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        os.kill(process.pid, number)
        _, talk = process.communicate(timeout=60)
    assert process.returncode == -number
    line = talk.decode().splitlines()[-1]
    wanted = rf"edgespec: crashed with {number.name} in a pass over edgespec .+ with llama-cpp-python .+: run `edgespec doctor`"
    assert re.fullmatch(wanted, line)


def test_an_assertion_of_the_engine_is_the_reason_in_that_line() -> None:
    done = subprocess.run([sys.executable, "-c", ASSERTION], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGABRT
    assert done.stderr == (
        "edgespec: crashed with SIGABRT in a pass over a model (ggml-cpu.c:12: GGML_ASSERT(x == y) failed more): "
        "run `edgespec doctor`\n"
    )
