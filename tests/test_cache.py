import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from edgespec.cache import cache_folder, data_folder


@pytest.mark.parametrize(("folder", "variable"), [(cache_folder, "EDGESPEC_CACHE"), (data_folder, "EDGESPEC_DATA")])
def test_folders_are_their_owners_alone(
    folder: Callable[[], Path], variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "a" / "b"))
    assert folder() == tmp_path / "a" / "b"
    assert stat.S_IMODE(folder().stat().st_mode) == 0o700


def test_where_nothing_can_be_written_a_temporary_folder_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path / "file" / "below"))
    assert cache_folder() == Path(tempfile.gettempdir())
