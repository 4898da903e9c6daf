"""The chat's commands, without a terminal; and the chat on one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import edgespec
from edgespec.cli.talk import COMMANDS, Settings, Talk, help_text
from edgespec.errors import ContextFull, ModelNotFound, UsageError
from edgespec.saved import Shelf
from edgespec.types import SamplingParams


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[tuple[Talk, list[str]]]:
    said: list[str] = []
    with edgespec.load(budget="1GiB", context=512) as runtime:
        yield Talk(runtime, said.append, Settings(SamplingParams(max_tokens=24)), Shelf(tmp_path)), said


def answer(talk: Talk, line: str) -> str:
    return "".join(chunk.text for chunk in talk.ask(line))


def test_questions_and_answers_are_kept_and_regenerated(talk: tuple[Talk, list[str]]) -> None:
    chat, _ = talk
    first = answer(chat, "Tell me a short story.")
    assert [message["role"] for message in chat.messages] == ["user", "assistant"]
    chat.command("/set temperature 1.2")
    question = chat.command("/regen")
    assert question == "Tell me a short story."
    assert chat.messages == []
    assert answer(chat, question) != first
    assert "tokens/s" in chat.status


def test_saving_clearing_and_loading(talk: tuple[Talk, list[str]]) -> None:
    chat, said = talk
    chat.command("/system You are brief.")
    answer(chat, "Tell me a short story.")
    kept = list(chat.messages)
    chat.command("/save monday")
    chat.command("/clear")
    assert chat.messages == [{"role": "system", "content": "You are brief."}]
    chat.command("/load monday")
    assert chat.messages == kept
    assert re.search(r"1 turns; [1-9]\d* tokens need not", said[-1])
    chat.command("/load")
    assert said[-1] == "saved: monday"
    with pytest.raises(ModelNotFound, match="monday"):
        chat.command("/load tuesday")


def test_settings_are_checked_and_shown(talk: tuple[Talk, list[str]]) -> None:
    chat, said = talk
    chat.command("/set seed = 7")
    chat.command("/set colour on")
    chat.command("/set parameter temperature 0.5")  # as ollama has it
    assert chat.settings.sampling.temperature == 0.5
    assert (chat.settings.sampling.seed, chat.settings.colour) == (7, True)
    for bad in ("/set", "/set warmth 3", "/set temperature hot", "/set temperature -1", "/set colour blue", "/set top_p 0"):
        with pytest.raises(UsageError):
            chat.command(bad)
    chat.command("/show")
    assert any(line.startswith("seed") and line.endswith("7") for line in said)
    assert any("edgespec" in line and "resident" in line for line in said)


def test_files_are_asked_and_mistakes_are_said(talk: tuple[Talk, list[str]], tmp_path: Path) -> None:
    chat, _ = talk
    (tmp_path / "question.txt").write_text("What is the capital of France?")
    assert chat.command(f"/read {tmp_path / 'question.txt'}") == "What is the capital of France?"
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for bad in ("/read /nowhere", "/read", f"/read {tmp_path / 'binary'}", "/dance", "/regen", "/save ../x"):
        with pytest.raises(UsageError):
            chat.command(bad)


def test_a_turn_that_does_not_fit_is_taken_back(talk: tuple[Talk, list[str]]) -> None:
    chat, _ = talk
    with pytest.raises(ContextFull):
        answer(chat, "word " * 2000)
    assert chat.messages == []
    assert answer(chat, "What is the capital of France?") == "The capital of France is Paris."


def test_help_names_every_command_and_no_other(talk: tuple[Talk, list[str]]) -> None:
    chat, said = talk
    chat.command("/help")
    assert said[-1] == help_text()
    assert set(re.findall(r"^/(\w+)", help_text(), re.M)) == {*COMMANDS, "bye"}
