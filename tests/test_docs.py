"""What the documents say is there: commands, options, codes and examples."""

import re
import sys
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from edgespec import errors
from edgespec.cli.app import app
from edgespec.cli.talk import COMMANDS, Settings

sys.path.append(str(Path(__file__).parent / "server"))

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands() -> dict[str, set[str]]:
    """Every command with its options; groups with those of all they hold."""
    found = {}
    root = get_command(app)
    assert isinstance(root, typer.core.TyperGroup)
    for name, command in root.commands.items():
        inner = command.commands.values() if isinstance(command, typer.core.TyperGroup) else [command]
        found[name] = {
            option for one in inner for parameter in one.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_line_is_one_that_exists(path: Path) -> None:
    known = commands()
    for line in re.findall(r"edgespec +([a-z]+(?: .*)?)", path.read_text()):
        name = line.split()[0]
        if not re.search(rf"edgespec +{name}\b(?= |`|$)", f"edgespec {line}") or name in {"runs", "is", "has", "can", "for"}:
            continue
        if name in known:
            said = set(re.findall(r"(?<![\w-])--[a-z-]+", line.split("#")[0].split("`")[0]))
            assert said <= known[name] | {"--help"}, (path.name, line)


def test_every_option_in_code_spans_exists() -> None:
    every = set.union(*commands().values()) | {"--version", "--help"}
    scripts = "\n".join(path.read_text() for path in (ROOT / "scripts").rglob("*") if path.suffix in (".py", ".sh"))
    inflate = (ROOT / "edgespec/bench/inflate.py").read_text()
    for path in DOCUMENTS:
        for span in re.findall(r"`([^`\n]*)`", path.read_text()):
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", span):
                assert option in every or option in scripts or option in inflate or span.startswith("pip"), (path.name, span)


def test_the_chats_commands_and_settings_are_the_documented_ones() -> None:
    text = (ROOT / "docs/chat.md").read_text()
    table = "\n".join(line for line in text.splitlines() if line.startswith("| `/"))
    assert set(re.findall(r"`/(\w+)", table)) == set(COMMANDS) - {"help"}
    for name in Settings().values:
        assert name in table


def test_exit_codes_are_the_documented_ones() -> None:
    told = {int(code) for code in re.findall(r"\b(\d+) [a-z]", (ROOT / "README.md").read_text().partition("Exit codes:")[2])}
    real = {getattr(errors, name).exit_code for name in errors.__all__}
    assert real <= told


def test_the_servers_example_answers() -> None:
    from conftest_server import served

    import edgespec

    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/server.md").read_text(), re.S)
    said: list[str] = []
    with edgespec.load(budget="1GiB", context=512) as runtime, served(runtime) as server:
        exec(block.replace("http://127.0.0.1:8080", server.url), {"print": said.append})
    assert said == ["The capital of France is Paris."]


def test_the_readmes_example_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    for name, role in (("big.gguf", "target"), ("small.gguf", "drafter")):
        (tmp_path / name).symlink_to(ROOT / f"models/edgespec-{role}.gguf")
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    exec(block.replace("4GiB", "1GiB"), {"print": said.append})
    assert said[0]


def test_the_api_reference_is_that_of_the_code() -> None:
    import api_reference

    assert (ROOT / "docs/api.md").read_text() == api_reference.reference() + "\n", "run scripts/api_reference.py > docs/api.md"
