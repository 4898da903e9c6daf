import json

import pytest

from edgespec.errors import UsageError
from edgespec.server.tools import tool_calls_in
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
    messages = [{"role": "user", "content": "When?"}, {"role": "assistant", "content": "", "tool_calls": calls}]
    tools = [{"type": "function", "function": {"name": "time"}}]
    text = ChatTemplate(source).render(messages, tools)
    assert text.startswith('[{"function": {"name": "time"}')
    assert "assistant: [time]" in text
    with pytest.raises(UsageError, match="knows no tools"):
        ChatTemplate("{{ messages[0].content }}").render(messages, tools)
