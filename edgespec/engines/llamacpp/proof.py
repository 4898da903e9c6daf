"""Whether the engine that was built works on this machine, found out in a child process before it is loaded into this one.

Kernels that this CPU or compiler breaks end the process that calls them, so nothing but another process can tell. The verdict
is kept until the engine, the CPU or the golden file changes.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgespec.cache import cache_folder
from edgespec.errors import EngineBroken, EngineMissing
from edgespec.memory.cpu import features
from edgespec.shipped import shipped

__all__ = ["GOLDEN", "Proof", "library_folder", "prove", "proven"]

GOLDEN = "golden/passes.json"
_TRUSTED = "EDGESPEC_UNPROVEN"  # set for the child, which uses the engine to prove it
_SECONDS = 120.0  # the child takes two; a machine that is busy, many more
_REMEDY = "build it with more conservative flags, EDGESPEC_ENGINE=avx2 (or baseline) scripts/setup.sh, or install another wheel"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Proof:
    """`rounding`: the largest difference of a logit between passes of different widths over the same tokens, for weights whose
    layout (`kernels.layout_of`) is among the `steady` ones, as those of the embedded pair are."""

    rounding: float
    steady: tuple[str, ...] = ()


@functools.cache
def proven() -> Proof:
    """The proof of this engine on this machine, made now if there is none. Raises EngineMissing, EngineBroken."""
    if _TRUSTED in os.environ:
        return Proof(0.0)  # nothing is decided by it there
    known = _kept().get(_key())
    return _judged(known) if known else prove()


def prove() -> Proof:
    """Run the self-test, whatever is known, and keep what came of it. Raises EngineMissing, EngineBroken."""
    key, verdict = _key(), _run()
    _keep(key, verdict)
    return _judged(verdict)


def library_folder() -> Path:
    """Where the engine's shared libraries are. Raises EngineMissing."""
    if chosen := os.environ.get("LLAMA_CPP_LIB_PATH"):  # as llama-cpp-python has it
        return Path(chosen)
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise EngineMissing("llama-cpp-python is not installed: run scripts/setup.sh, or `edgespec doctor`")
    return Path(spec.origin).parent / "lib"


Verdict = dict[str, Any]  # a proof's fields, or {"failure": why}


def _judged(verdict: Verdict) -> Proof:
    if "failure" in verdict:
        raise EngineBroken(f"the engine fails its self-test on this machine ({verdict['failure']}): {_REMEDY}")
    return Proof(verdict["rounding"], tuple(verdict["steady"]))


def _run() -> Verdict:
    """In a child process with the same modules, which prints its stages and, last, its proof."""
    command = [sys.executable, "-m", "edgespec.engines.llamacpp.selftest"]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, _TRUSTED: "1", "OMP_WAIT_POLICY": "passive", "PYTHONPATH": path}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, timeout=_SECONDS, capture_output=True, text=True
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        return {"failure": f"no answer in {_SECONDS:.0f} s{_stage(_text(late.stdout))}"}
    _log.debug("%s%s", done.stdout, done.stderr)
    if done.returncode == 0:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    if done.returncode == -signal.SIGKILL:
        raise EngineMissing("the engine's self-test was killed, perhaps for want of memory: close other programs and try again")
    if done.returncode < 0:
        return {"failure": f"{signal.Signals(-done.returncode).name}{_stage(done.stdout)}"}
    if done.returncode == EngineMissing.exit_code:
        raise EngineMissing(_last(done.stderr))
    raise EngineMissing(f"the engine's self-test cannot run ({_last(done.stderr)}): run scripts/setup.sh, or `edgespec doctor`")


def _text(output: bytes | str | None) -> str:
    return output.decode("utf-8", "replace") if isinstance(output, bytes) else output or ""


def _stage(output: str) -> str:
    return f" in {_last(output)}" if output.strip() else " while its libraries were loaded"


def _last(output: str) -> str:
    return next(reversed(output.strip().splitlines()), "it said nothing")


def _key() -> str:
    """Names the libraries, by what tells one build from another, the CPU and what is expected of them."""
    folder = library_folder()
    libraries = sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in folder.glob("*") if path.is_file())
    named = json.dumps([str(folder), libraries, features(), shipped(GOLDEN).read_text()])
    return hashlib.sha256(named.encode()).hexdigest()


def _verdicts() -> Path:
    return cache_folder() / "engines.json"


def _kept() -> dict[str, Verdict]:
    try:
        kept = json.loads(_verdicts().read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _keep(key: str, verdict: Verdict) -> None:
    path = _verdicts()
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        partial.write_text(json.dumps(_kept() | {key: verdict}))
        partial.replace(path)
    except OSError as error:
        _log.info("the engine will be tested again: %s", error.strerror)
