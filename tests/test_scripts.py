"""Scripts start: each says what it is for, before it imports or does anything that takes long."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYTHON = sorted(path for path in (ROOT / "scripts").glob("*.py") if "__main__" in path.read_text())
SHELL = sorted((ROOT / "scripts").glob("*.sh"))


@pytest.fixture(scope="module")
def helped(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, tuple[int, str, list[Path]]]:
    """What each said when asked for help, in a folder of its own: exit code, both outputs, and what it left there."""
    running = {}
    for path in PYTHON:
        folder = tmp_path_factory.mktemp(path.stem)
        command = [sys.executable, str(path), "--help"]
        running[path] = folder, subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )  # fmt: skip
    said = {path: (process.communicate(timeout=120)[0], process) for path, (_, process) in running.items()}
    return {path: (process.returncode, text, list(running[path][0].iterdir())) for path, (text, process) in said.items()}


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.name)
def test_a_script_says_what_it_is_for_and_does_nothing_else(path: Path, helped: dict[Path, tuple[int, str, list[Path]]]) -> None:
    code, text, left = helped[path]
    assert code == 0, text
    assert text.startswith(f"usage: {path.name}")
    assert left == []


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_shell_scripts_are_whole_and_stop_at_the_first_error(path: Path) -> None:
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    text = path.read_text()
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
