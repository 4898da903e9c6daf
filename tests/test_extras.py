"""What comes with an extra is in the way of no command that does without it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from edgespec.errors import UsageError
from edgespec.extras import extra

ROOT = Path(__file__).parent.parent
LIBRARIES = {"gguf": "models", "huggingface_hub": "hub", "jsonschema": "server", "matplotlib": "bench", "starlette": "server",
             "uvicorn": "server"}  # fmt: skip
PAIR = ["--target", str(ROOT / "models/edgespec-target.gguf"), "--drafter", str(ROOT / "models/edgespec-drafter.gguf")]
COMMANDS = {"models": ["demo"], "hub": ["pull", "qwen2.5:7b"], "server": ["serve"], "bench": ["bench", *PAIR]}


def without(libraries: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command where these libraries are not installed."""
    code = f"import sys; sys.modules.update(dict.fromkeys({libraries!r})); from edgespec.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--help"], "Run a language model"),
        (["run", "What is edgespec?", "--budget", "600MiB", "--max-tokens", "8"], "edgespec runs a language model"),
        (["plan", "--budget", "600MiB"], "total"),
        (["doctor"], "callbacks"),
        (["list", "--all"], "qwen2.5:7b"),
    ],
)
def test_most_commands_need_no_extra(arguments: list[str], shown: str) -> None:
    done = without([*LIBRARIES], *arguments)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_command_names_the_extra_it_needs(library: str) -> None:
    done = without([library], *COMMANDS[LIBRARIES[library]])
    assert done.returncode == UsageError.exit_code
    assert done.stderr == f"edgespec: {library} is missing: pip install 'edgespec[{LIBRARIES[library]}]'\n"


def test_the_extras_bring_these_libraries() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    del extras["dev"]
    assert {item.partition(">")[0].replace("-", "_"): name for name, items in extras.items() for item in items} == LIBRARIES


@pytest.mark.parametrize("name", ["edgespec.nowhere", "edgespec"])
def test_a_fault_of_our_own_is_not_blamed_on_a_library(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="no such room"), extra("server"):
        raise ModuleNotFoundError("no such room", name=name)
