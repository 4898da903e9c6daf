"""The wheels of `scripts/wheels.sh` where nothing else is: no clone, no compiler, an empty environment, installed in three ways.

scripts/wheels.sh dist && EDGESPEC_WHEELS=dist .venv/bin/python -m pytest -m wheels
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

FOLDER = os.environ.get("EDGESPEC_WHEELS")
pytestmark = [pytest.mark.wheels, pytest.mark.skipif(not FOLDER, reason="EDGESPEC_WHEELS names no folder of wheels")]

ASKED = ["run", "What is edgespec?", "--budget", "600MiB"]
LIBRARIES = ["libggml-base.so.0", "libggml-cpu.so.0", "libggml.so.0", "libllama.so"]
FEATURES = "from llama_cpp import llama_cpp; print(llama_cpp.llama_print_system_info().decode())"
LOADED = """
import edgespec
with edgespec.load(budget="600MiB", context=256) as model:
    model.generate("Once", max_tokens=2)
    print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}), sep="\\n")
"""


@dataclass(frozen=True)
class Place:
    """Where the wheels were installed: the packages are below `root`; `environment` is what running them takes."""

    python: Path
    root: Path
    script: Path
    environment: dict[str, str]

    def run(self, *command: object, timeout: float = 60) -> str:
        """From elsewhere."""
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=timeout,
            env=self.environment, cwd=self.root.parent,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return str(done.stdout)


def place(way: str, folder: Path) -> Place:
    """An empty environment, with nothing but its own programs on PATH."""
    venv = folder / "venv"
    root = venv if way == "plain" else folder / way
    seen = ["--system-site-packages"] if way == "user" else []  # elsewhere pip refuses --user
    subprocess.run([sys.executable, "-m", "venv", *seen, venv], check=True, timeout=120)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PATH": str(venv / "bin"), "EDGESPEC_CACHE": str(folder / "cache"), "PYTHONUSERBASE": str(folder / "user")}
    if way == "target":
        environment["PYTHONPATH"] = str(root)
    return Place(venv / "bin/python", root, root / "bin/edgespec", environment)


@pytest.fixture(scope="module", params=["plain", "user", "target"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = place(request.param, tmp_path_factory.mktemp(request.param))
    assert not any(shutil.which(name, path=made.environment["PATH"]) for name in ("cc", "c++", "gcc", "g++", "clang", "cmake"))
    ways: dict[str, list[object]] = {"plain": [], "user": ["--user", "--ignore-installed"], "target": ["--target", made.root]}
    wheels = [path.resolve() for path in Path(FOLDER or "").glob("*.whl")]
    made.run(made.python, "-m", "pip", "install", "--only-binary", ":all:", *ways[request.param], *wheels, timeout=600)
    return made


def test_they_answer_as_the_clone_does(installed: Place) -> None:
    clone = subprocess.run([sys.executable, "-m", "edgespec", *ASKED], capture_output=True, text=True, check=True, timeout=120)
    assert clone.stdout.startswith("edgespec runs a language model")
    assert installed.run(installed.script, *ASKED) == clone.stdout


def test_one_copy_of_each_library_is_loaded_and_libgomp_comes_along(installed: Place) -> None:
    loaded = [Path(line) for line in installed.run(installed.python, "-c", LOADED).splitlines()]
    assert [path.name for path in loaded if path.name.startswith(("libggml", "libllama"))] == LIBRARIES
    (gomp,) = [path for path in loaded if path.name.startswith("libgomp")]
    assert gomp.parent.name == "llama_cpp_python.libs"
    assert all(path.is_relative_to(installed.root) for path in loaded if path.name in LIBRARIES or path == gomp)


def test_the_engine_asks_for_no_more_of_a_cpu_than_its_name_says(installed: Place) -> None:
    has = {item.partition(" = ")[0].strip() for item in installed.run(installed.python, "-c", FEATURES).split("|")}
    assert {"AVX2", "FMA", "F16C", "BMI2"} <= has
    assert not [name for name in has if name.startswith(("AVX512", "AMX", "AVX_VNNI"))]


def test_the_names_say_what_they_run_on() -> None:
    edgespec, engine = sorted(path.name for path in Path(FOLDER or "").glob("*.whl"))
    assert edgespec.split("-")[2:4] == ["cp311", "abi3"]
    assert engine.split("-")[1].endswith("+edgespec.avx2")
    assert all("-manylinux" in name for name in (edgespec, engine))


def test_the_doctor_finds_nothing_missing(installed: Place) -> None:
    said = installed.run(installed.script, "doctor")
    assert "FAIL" not in said
    assert "+edgespec.avx2" in said
