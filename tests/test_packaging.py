"""What `pip install .` puts into a folder: found there, whatever folder it is."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgespec import shipped
from edgespec.errors import ModelNotFound

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip put edgespec from a copy of the clone, so that nothing built before got in."""
    copy, folder = tmp_path_factory.mktemp("clone") / "edgespec", tmp_path_factory.mktemp("installed")
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "*.so", "build", "dist", "*.egg-info", "tests", "docs"))
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(folder)]
    done = subprocess.run([*command, str(copy)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_installed_package_has_everything(installed: Path) -> None:
    package = installed / "edgespec"
    for folder, pattern in (("edgespec", "*.py"), ("edgespec/server/page", "*"), ("models", "*.gguf"), ("models", "**/*.json")):
        for path in (ROOT / folder).rglob(pattern):
            inside = path.relative_to(ROOT / "edgespec") if folder.startswith("edgespec") else path.relative_to(ROOT)
            assert (package / inside).read_bytes() == path.read_bytes()
    assert (package / "py.typed").exists()
    assert len([*package.rglob("*.abi3.so")]) == 1
    assert (installed / "bin/edgespec").exists()
    (wheel,) = installed.glob("edgespec-*.dist-info/WHEEL")
    assert "Tag: cp311-abi3-" in wheel.read_text()


def test_it_answers_from_where_it_is(installed: Path, tmp_path: Path) -> None:
    script = "import sys, edgespec; sys.stderr.write(edgespec.__file__); from edgespec.cli import main; main()"
    command = [sys.executable, "-c", script, "run", "What is edgespec?", "--budget", "600MiB"]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(str(installed))
    assert done.stdout.startswith("edgespec runs a language model")


def test_a_file_that_is_missing_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "__file__", str(tmp_path / "edgespec/shipped.py"))
    with pytest.raises(ModelNotFound, match="install edgespec again"):
        shipped.embedded_model("target")
