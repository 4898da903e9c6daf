"""An engine that crashes, hangs or computes wrongly is found out before it is used: functions of the real one are patched."""

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgespec.engines.llamacpp import proof
from edgespec.engines.llamacpp.library import ggml, llama
from edgespec.errors import EngineBroken, EngineMissing

CODE = {
    "x86_64": {"crash": b"\x0f\x0b", "return": b"\xc3", "hang": b"\xeb\xfe"},
    "aarch64": {"crash": bytes(4), "return": b"\xc0\x03\x5f\xd6", "hang": b"\x00\x00\x00\x14"},
}.get(platform.machine(), {})
Patched = Callable[[str, str], Path]

pytestmark = pytest.mark.skipif(not CODE or sys.platform != "linux", reason="no machine code to patch with here")


@pytest.fixture
def patched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patched:
    """A copy of the engine in which a function of the CPU kernels does something else, and a cache that knows nothing of it."""
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path / "cache"))

    def patch(function: str, what: str) -> Path:
        folder = tmp_path / "lib"
        shutil.copytree(proof.library_folder(), folder)
        name, offset = _place(function)
        with (folder / name).open("r+b") as file:
            file.seek(offset)
            file.write(CODE[what])
        monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(folder))
        return folder

    return patch


def _place(function: str) -> tuple[str, int]:
    """The library file of a function of the engine that is loaded here, and where in it its code begins."""
    address = ctypes.cast(getattr(ggml().cpu, function), ctypes.c_void_p).value or 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, _, _, *path = line.split()
        start, end = (int(part, 16) for part in span.split("-"))
        if start <= address < end:
            return Path(path[0]).name, address - start + int(offset, 16)
    raise AssertionError(f"{function} is in no mapping")


def edgespec(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "edgespec", *words], capture_output=True, text=True, timeout=60)


def test_the_engine_in_use_is_proven() -> None:
    assert 0 <= proof.prove().rounding < 1
    assert {"F32", "Q8_0"} <= set(proof.proven().steady)
    assert proof.proven() == proof.proven()


def test_the_libraries_are_those_that_llama_cpp_python_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path(llama()._lib._name).parent == proof.library_folder()
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    assert proof.library_folder() == tmp_path


def test_kernels_that_crash_are_one_line_and_exit_6(patched: Patched) -> None:
    patched("ggml_graph_compute", "crash")
    done = edgespec("run", "hi")
    assert done.returncode == EngineMissing.exit_code
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "SIGILL in" in line
    assert "EDGESPEC_ENGINE=avx2" in line
    report = edgespec("doctor", "--json")
    assert report.returncode == EngineMissing.exit_code
    findings = {finding["name"]: finding for finding in json.loads(report.stdout)}
    assert not findings["self-test"]["good"]
    assert findings["disk"]["good"]


def test_a_library_that_crashes_while_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "crash.c"
    source.write_text("__attribute__((constructor)) static void load(void) { __builtin_trap(); }\n")
    compiler = shutil.which("cc") or pytest.skip("no C compiler here")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "libllama.so", source], check=True)
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path / "cache"))
    with pytest.raises(EngineBroken, match=r"SIG(ILL|TRAP).* loading the drafter"):
        proof.prove()


def test_kernels_that_compute_nothing(patched: Patched) -> None:
    patched("ggml_compute_forward_soft_max", "return")
    with pytest.raises(EngineBroken, match=r"node 0 .* in one row"):
        proof.prove()


def test_kernels_that_hang(patched: Patched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "_SECONDS", 5.0)
    patched("ggml_graph_compute", "hang")
    with pytest.raises(EngineBroken, match="no answer in 5 s in one row"):
        proof.prove()


def test_a_verdict_holds_until_the_engine_changes(patched: Patched, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = patched("ggml_graph_compute", "crash")
    runs: list[str] = []
    run = proof._run

    def counting() -> proof.Verdict:
        runs.append("run")
        return run()

    monkeypatch.setattr(proof, "_run", counting)
    for _ in range(2):
        proof.proven.cache_clear()
        with pytest.raises(EngineBroken, match="SIGILL"):
            proof.proven()
    assert runs == ["run"]
    shutil.rmtree(folder)
    monkeypatch.delenv("LLAMA_CPP_LIB_PATH")
    proof.proven.cache_clear()
    assert proof.proven().rounding < 1
    assert runs == ["run", "run"]


def test_an_engine_that_is_not_there_or_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    with pytest.raises(EngineMissing, match="cannot be loaded") as refused:
        proof.prove()
    assert not isinstance(refused.value, EngineBroken)
    monkeypatch.delenv("LLAMA_CPP_LIB_PATH")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineMissing, match="not installed"):
        proof.library_folder()


def test_a_test_that_was_killed_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(_killed(tmp_path)))
    with pytest.raises(EngineMissing, match="memory"):
        proof.prove()
    assert not (tmp_path / "engines.json").exists()


def _killed(folder: Path) -> Path:
    script = folder / "python"
    script.write_text("#!/bin/sh\nkill -9 $$\n")
    os.chmod(script, 0o755)
    return script
