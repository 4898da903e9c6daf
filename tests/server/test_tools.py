import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
from conftest_server import served
from ggufs import with_template
from hypothesis import given
from hypothesis import strategies as st

import edgespec
from edgespec.errors import UsageError
from edgespec.server.tools import HeldText, tool_calls_in
from edgespec.text.template import ChatTemplate

NAMES = {"weather", "time"}
CALL = '{"name": "weather", "arguments": {"city": "Paris"}}'


@pytest.mark.parametrize(
    ("text", "said", "names"),
    [
        (f"<tool_call>\n{CALL}\n</tool_call>", "", ["weather"]),
        (f"Let me see.\n<tool_call>{CALL}</tool_call><tool_call>{CALL.replace('weather', 'time')}</tool_call>", "Let me see.",
         ["weather", "time"]),
        (CALL.replace("arguments", "parameters"), "", ["weather"]),
        ("<|python_tag|>" + CALL, "", ["weather"]),
        ("The capital is Paris.", "The capital is Paris.", []),
        (CALL.replace("weather", "launch"), CALL.replace("weather", "launch"), []),
        ("<tool_call>{not json}</tool_call>", "<tool_call>{not json}</tool_call>", []),
        ("[TOOL_CALLS] [" + CALL + ", " + CALL.replace("weather", "time") + "]", "", ["weather", "time"]),
        ("[" + CALL + ", 3]", "[" + CALL + ", 3]", []),
        ('{"name": "weather", "arguments": "all"}', '{"name": "weather", "arguments": "all"}', []),
    ],
)  # fmt: skip
def test_calls_are_found_in_the_manners_models_have(text: str, said: str, names: list[str]) -> None:
    rest, calls = tool_calls_in(text, NAMES)
    assert (rest, [call["function"]["name"] for call in calls]) == (said, names)
    assert all(json.loads(call["function"]["arguments"]) == {"city": "Paris"} for call in calls)
    assert len({call["id"] for call in calls}) == len(calls)


def test_templates_are_told_of_tools_and_of_calls() -> None:
    source = (
        "{% if tools %}{{ tools | tojson }}\n{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}"
        "{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}\n{% endfor %}"
    )
    calls = [{"id": "1", "type": "function", "function": {"name": "time", "arguments": "{}"}}]
    messages: list[Any] = [{"role": "user", "content": "When?"}, {"role": "assistant", "content": "", "tool_calls": calls}]
    tools = [{"type": "function", "function": {"name": "time"}}]
    text = ChatTemplate(source).render(messages, tools)
    assert text.startswith('[{"function": {"name": "time"}')
    assert "assistant: [time]" in text
    with pytest.raises(UsageError, match="knows no tools"):
        ChatTemplate("{{ messages[0].content }}").render(messages, tools)


PIECES = st.lists(st.sampled_from([
    "Let me see. ", "<", "<tool_", f"<tool_call>{CALL}</tool_call>", "{", CALL, "\n ", "[TOOL_CALLS]", "tool", "x < 3",
]))  # fmt: skip


@given(PIECES, st.lists(st.integers(0, 200)))
def test_answers_go_out_as_they_come_but_for_calls(pieces: list[str], cuts: list[int]) -> None:
    text, held = "".join(pieces), HeldText(NAMES)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    out = "".join(held.feed(text[start:end]) for start, end in itertools.pairwise(edges))
    rest, calls = held.rest()
    said, wanted = tool_calls_in(text, NAMES)
    assert [call["function"] for call in calls] == [call["function"] for call in wanted]
    assert re.sub(r"\s", "", out + rest) == re.sub(r"\s", "", said)
    assert calls or out + rest == text
    assert "<tool_call>" not in out


def test_ordinary_text_waits_for_nothing() -> None:
    held = HeldText(NAMES)
    assert [held.feed(piece) for piece in ("The ", "capital", " <", "b> is {Paris}")] == [
        "The ",
        "capital",
        " ",
        "<b> is {Paris}",
    ]
    assert held.rest() == ("", [])


TEMPLATES = {
    "tagged": "{% if tools %}{{ tools | tojson }} Answer <tool_call>{}</tool_call>.{% endif %}",
    "listed": "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[TOOL_CALLS]{% endif %}",
    "bare": '{% if tools %}{{ tools | tojson }} Answer {"name": name, "parameters": arguments}.{% endif %}',
}
FRAME = (
    "{% for m in messages %}<|{{ 'user' if m.role == 'tool' else m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments.city }}){% endfor %}<|end|>"
    "{% endfor %}<|assistant|>"
)
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": {
        "type": "object", "additionalProperties": False, "properties": {
            "city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
        }, "required": ["city", "days"],
    }}} for name in ("weather", "time")
]  # fmt: skip


@pytest.fixture(params=TEMPLATES)
def tooled(request: pytest.FixtureRequest, target_path: Path, drafter_path: Path, tmp_path: Path) -> Iterator[openai.OpenAI]:
    """A server of a model that knows tools in one of the manners there are."""
    path = with_template(target_path, TEMPLATES[request.param] + FRAME, tmp_path / "tooled.gguf")
    with (
        edgespec.load(path, drafter_path, budget="1GiB", context=1024) as runtime,
        served(runtime) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="any", max_retries=0) as client,
    ):
        yield client


def test_a_call_that_must_be_is_made_streamed_and_answered(tooled: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]

    def ask(**options: Any) -> Any:
        return tooled.chat.completions.create(model="pair", messages=messages, tools=TOOLS, temperature=0, **options)

    done = ask(tool_choice="required").choices[0]
    assert done.finish_reason == "tool_calls"
    [call] = done.message.tool_calls
    jsonschema.validate(json.loads(call.function.arguments), TOOLS[0]["function"]["parameters"])
    named = ask(tool_choice={"type": "function", "function": {"name": "time"}}, stream=True)
    events = [event.choices[0] for event in named if event.choices]
    [streamed] = [part for event in events for part in event.delta.tool_calls or []]
    assert streamed.function.name == "time"
    assert events[-1].finish_reason == "tool_calls"
    messages += [done.message, {"role": "tool", "tool_call_id": call.id, "content": "It rains."}]
    assert ask(tool_choice="none").choices[0].message.content
    messages = [{"role": "user", "content": "Tell me a short story."}]
    pieces = [event.choices[0].delta.content for event in ask(stream=True) if event.choices and event.choices[0].delta.content]
    assert len(pieces) > 3  # an answer that is no call is not held back
    with pytest.raises(openai.BadRequestError, match="no such tool"):
        ask(tool_choice={"type": "function", "function": {"name": "launch"}})
    with pytest.raises(openai.BadRequestError, match="response_format"):
        ask(tool_choice="required", response_format={"type": "json_object"})
