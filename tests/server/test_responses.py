"""The Responses API, asked by the official client."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import openai
import pytest
from conftest_server import Running
from openai.types.responses import Response
from test_tools import TOOLS, tooled

__all__ = ["tooled"]  # a fixture

CAPITAL = "What is the capital of France?"


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def test_the_official_clients_first_example(client: openai.OpenAI) -> None:
    done = client.responses.create(model="gpt-5.5", instructions="You are brief.", input=CAPITAL, temperature=0)
    assert "Paris" in done.output_text
    Response.model_validate(done.model_dump())  # the client itself takes anything
    assert (done.status, done.output[0].status, done.error) == ("completed", "completed", None)
    assert done.instructions == "You are brief."
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens
    assert done.model_extra["edgespec"]["tokens"] == done.usage.output_tokens


def test_a_stream_says_what_the_whole_says_in_events_of_the_api(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "x", "input": "Tell me a short story.", "temperature": 0, "max_output_tokens": 40}
    whole = client.responses.create(**asked)
    assert (whole.status, whole.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    events = list(client.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
    ]  # fmt: skip
    assert kinds[-4:] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete",
    ]  # fmt: skip
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[-2].item.status == "incomplete"
    assert text == whole.output_text == events[-1].response.output_text == events[-4].text
    with client.responses.stream(**asked) as stream:  # the client's own accumulator
        for _ in stream:
            pass
    del asked["max_output_tokens"]
    with client.responses.stream(**asked) as stream:
        assert stream.get_final_response().status == "completed"


def test_a_conversation_goes_on_with_what_was_put_out(client: openai.OpenAI) -> None:
    said: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": CAPITAL}]}]
    done = client.responses.create(model="x", input=said, temperature=0)
    said += [*done.output, {"role": "user", "content": "And then?"}]
    again = client.responses.create(model="x", input=said, temperature=0)
    chat = client.chat.completions.create(model="x", temperature=0, messages=[
        {"role": "user", "content": CAPITAL}, {"role": "assistant", "content": done.output_text},
        {"role": "user", "content": "And then?"},
    ])  # fmt: skip
    assert again.output_text == chat.choices[0].message.content
    assert again.usage.input_tokens_details.cached_tokens > 0


def test_a_schema_is_kept(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 3, "maximum": 9}}, "required": ["age"]}
    form = {"type": "json_schema", "name": "person", "schema": schema, "strict": True}
    done = client.responses.create(model="x", input=CAPITAL, temperature=0, text={"format": form})
    jsonschema.validate(json.loads(done.output_text), schema)


def test_what_would_have_to_be_kept_or_is_not_known_is_refused(client: openai.OpenAI) -> None:
    for options in ({"previous_response_id": "resp_1"}, {"background": True}, {"include": ["file_search_call.results"]},
                    {"tools": [{"type": "web_search"}]}):  # fmt: skip
        with pytest.raises(openai.BadRequestError):
            client.responses.create(model="x", input=CAPITAL, **options)


def test_a_call_is_made_streamed_and_answered(tooled: openai.OpenAI) -> None:
    tools = [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]
    said: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    options: dict[str, Any] = {"model": "x", "tools": tools, "temperature": 0}
    done = tooled.responses.create(input=said, tool_choice="required", **options)
    [call] = done.output
    Response.model_validate(done.model_dump())
    jsonschema.validate(json.loads(call.arguments), TOOLS[0]["function"]["parameters"])
    events = list(tooled.responses.create(input=said, tool_choice={"type": "function", "name": "time"}, stream=True, **options))
    [named] = [event for event in events if event.type == "response.function_call_arguments.done"]
    [item] = events[-1].response.output
    assert (item.name, item.arguments) == ("time", named.arguments)
    said += [*done.output, {"type": "function_call_output", "call_id": call.call_id, "output": "It rains."}]
    assert tooled.responses.create(input=said, tool_choice="none", **options).output_text
