"""Models for tests: the embedded pair, and an inflation of it that is small enough to page in a second."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent
REAL_ENVIRONMENT = dict(os.environ)  # with the user's own cache, before it is kept out of it
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

settings.register_profile("edgespec", deadline=None, print_blob=True)
settings.load_profile("edgespec")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the user's cache out of it. On the file system of the checkout: direct reads do not work everywhere."""
    folder = tmp_path_factory.mktemp("cache")
    patch = pytest.MonkeyPatch()
    patch.setenv("EDGESPEC_CACHE", str(folder))
    patch.setenv("EDGESPEC_DATA", str(folder / "data"))
    yield folder
    patch.undo()


@pytest.fixture(scope="session")
def target_path() -> Path:
    return ROOT / "models/edgespec-target.gguf"


@pytest.fixture(scope="session")
def drafter_path() -> Path:
    return ROOT / "models/edgespec-drafter.gguf"


@pytest.fixture(scope="session")
def real_model_path() -> Path:
    """Gemma 3 270M, fetched into the user's cache once; tests that want it are skipped where it cannot be."""
    done = subprocess.run([ROOT / "scripts/real_model.sh"], capture_output=True, text=True, env=REAL_ENVIRONMENT)
    if done.returncode:
        pytest.skip((done.stderr.splitlines() or ["scripts/real_model.sh failed"])[-1])
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def inflated_path(target_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded target as about 100 MB of weights, same function."""
    from edgespec.bench.inflate import inflate

    path = tmp_path_factory.mktemp("models") / "inflated.gguf"
    inflate(target_path, path, 100 << 20)
    return path


@pytest.fixture(scope="session")
def kernel_cap() -> None:
    """Skips where this machine lets nobody cap memory."""
    from edgespec.bench import capped

    try:
        capped.how()
    except capped.CannotCap as reason:
        pytest.skip(str(reason))
