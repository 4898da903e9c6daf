"""`edgespec doctor`: what is there, what is missing, and the command that mends it."""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from edgespec.cache import cache_folder
from edgespec.cli import options as opt
from edgespec.cli.console import write
from edgespec.engines.llamacpp.library import engine_version
from edgespec.engines.llamacpp.native import native_library
from edgespec.engines.llamacpp.proof import prove
from edgespec.errors import EdgespecError, EngineMissing, RuntimeFault
from edgespec.memory.budget import format_size, read_limits
from edgespec.memory.calibrate import measure_bandwidth
from edgespec.memory.cpu import usable_threads
from edgespec.modelfile.header import read_model
from edgespec.shipped import embedded_model
from edgespec.types import FileIdentity

__all__ = ["doctor"]

_SAMPLE = 64 << 20


@dataclass(frozen=True)
class Finding:
    name: str
    good: bool
    found: str
    remedy: str = ""


def doctor(
    engine: Annotated[bool, typer.Option("--engine", help="Test the engine alone.")] = False, as_object: opt.Json = False
) -> None:
    """Test the engine anew; check the callbacks, the CPU, the limits, the disk and the embedded pair."""
    findings = [_try(name, check, remedy) for name, check, remedy in _CHECKS if name in _ENGINE or not engine]
    if as_object:
        write(json.dumps([asdict(finding) for finding in findings]) + "\n")
    else:
        for finding in findings:
            mark = "ok  " if finding.good else "FAIL"
            write(f"{mark} {finding.name:<12} {finding.found}" + ("" if finding.good else f"; {finding.remedy}") + "\n")
    if broken := [finding for finding in findings if not finding.good]:
        raise typer.Exit(EngineMissing.exit_code if broken[0].name in _ENGINE else RuntimeFault.exit_code)


def _try(name: str, check: Callable[[], str], remedy: str) -> Finding:
    try:
        return Finding(name, True, check())
    except (EdgespecError, OSError) as error:
        return Finding(name, False, str(error), remedy)


def _self_test() -> str:
    proof = prove()
    moved = f"moves logits by up to {proof.rounding:.2f}" if proof.rounding else "changes no logit"
    return f"golden passes right; the width of a pass {moved} where weights are {', '.join(proof.steady)}"


def _callbacks() -> str:
    if platform.system() != "Linux":
        return "not needed: slots are for Linux, elsewhere targets are paged by mmap"
    if native_library() is None:
        raise OSError("the C callbacks are not built, targets are paged by plain mmap")
    return "C callbacks built"


def _cpu() -> str:
    flags: set[str] = set()
    info = Path("/proc/cpuinfo")
    if info.exists():
        flags = next(
            (set(line.split()) for line in info.read_text().splitlines() if line.startswith(("flags", "Features"))), set()
        )
    known = [name for name in ("avx2", "avx512f", "avx512_vnni", "amx_int8", "asimddp", "i8mm", "sve") if name in flags]
    return f"{usable_threads()} threads usable on {platform.machine()}, {' '.join(known) or 'no vector extensions known'}"


def _limits() -> str:
    limits = read_limits()
    cap = f", capped at {format_size(limits.cap)} by a cgroup" if limits.cap is not None else ""
    return f"{format_size(limits.usable)} usable of {format_size(limits.total)}{cap}"


def _disk() -> str:
    folder = cache_folder()
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(b"\1" * _SAMPLE)
        file.flush()
        stat = Path(file.name).stat()
        speed = measure_bandwidth(FileIdentity.of(file.name, stat))
    return f"{format_size(speed)}/s direct reads in {folder}"


def _pair() -> str:
    target, drafter = read_model(embedded_model("target")), read_model(embedded_model("drafter"))
    return f"{target.name} ({format_size(target.weight_bytes)}) and {drafter.name} ({format_size(drafter.weight_bytes)})"


_ENGINE = ("self-test", "engine")
_CHECKS: tuple[tuple[str, Callable[[], str], str], ...] = (
    ("self-test", _self_test, "nothing runs before this is mended"),
    ("engine", engine_version, "run scripts/setup.sh"),
    ("callbacks", _callbacks, "install a C compiler and reinstall edgespec"),
    ("cpu", _cpu, "report this machine"),
    ("memory", _limits, "report this machine"),
    ("disk", _disk, "set EDGESPEC_CACHE to a folder on a local disk"),
    ("pair", _pair, "check out models/ again, or install edgespec again"),
)
