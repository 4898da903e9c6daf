import importlib
import pkgutil
import re
from pathlib import Path

import edgespec
from edgespec import errors


def test_the_public_surface() -> None:
    assert sorted(edgespec.__all__) == [
        "Chunk", "Completion", "MemoryPlan", "Runtime", "SamplingParams", "Statistics", "__version__", "load",
    ]  # fmt: skip


def test_every_error_is_in_the_tree_that_its_docstring_draws_with_its_exit_code() -> None:
    drawn = dict(re.findall(r"(\w+)(?: \(also \w+\))? +(\d+|)  ", errors.__doc__ or ""))
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, errors.EdgespecError)
        assert name in (errors.__doc__ or "")
        if drawn.get(name):
            assert kind.exit_code == int(drawn[name]), name


def test_every_module_has_a_docstring_and_files_stay_short() -> None:
    for info in pkgutil.walk_packages(edgespec.__path__, "edgespec."):
        if info.ispkg or info.name.endswith(("__main__", "_native")):
            continue
        module = importlib.import_module(info.name)
        assert module.__doc__, info.name
        assert len(Path(module.__file__ or "").read_text().splitlines()) <= 330, info.name
