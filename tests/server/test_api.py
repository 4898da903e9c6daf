"""The API over a real socket, with the official client and by hand."""

import asyncio
import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import jsonschema
import openai
import pytest
from conftest_server import Running, served

from edgespec.errors import EngineError
from edgespec.server.openapi import document
from edgespec.speculation.decoder import Decoder

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ENDLESS = {"grammar": "root ::= [a-z ] root"}  # an answer that only the context ends
STORY = [{"role": "user", "content": "Tell me a short story about Anna."}]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers take their time, as those of a large model do."""
    verify = Decoder._verify

    def slowly(*arguments: Any) -> Any:
        time.sleep(0.05)
        return verify(*arguments)

    monkeypatch.setattr(Decoder, "_verify", slowly)


@pytest.fixture
def client(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)


def test_the_official_clients_first_example(client: openai.OpenAI) -> None:
    done = client.chat.completions.create(model="gpt-4o", messages=QUESTION, temperature=0)
    assert done.choices[0].message.content == "The capital of France is Paris."
    assert done.choices[0].finish_reason == "stop"
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens
    assert done.model_extra["edgespec"]["passes"] >= 1
    assert "".join(text for text, _ in done.model_extra["edgespec"]["spans"]) == done.choices[0].message.content


def test_the_official_client_streams(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="pair", messages=STORY, temperature=0, max_completion_tokens=60)
    stream = client.chat.completions.create(
        model="pair", messages=STORY, temperature=0, max_completion_tokens=60, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    events = list(stream)
    assert events[0].choices[0].delta.role == "assistant"
    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    assert text == whole.choices[0].message.content
    assert events[-1].usage == whole.usage or events[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert [event.choices[0].finish_reason for event in events if event.choices][-1] == "length"


def test_the_official_async_client(server: Running) -> None:
    async def scene() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
            stream = await client.chat.completions.create(model="x", messages=QUESTION, temperature=0, stream=True)
            return [event.choices[0].delta.content or "" async for event in stream]

    assert "".join(asyncio.run(scene())) == "The capital of France is Paris."


def test_text_completions_and_models(client: openai.OpenAI, server: Running) -> None:
    start = "It was a cold evening, and Anna"
    done = client.completions.create(model="pair", prompt=start, temperature=0, logprobs=2, max_tokens=12)
    assert done.choices[0].text == server.runtime.generate(start, max_tokens=12).text
    logprobs = done.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == 12
    assert logprobs.text_offset[:2] == [0, len(logprobs.tokens[0])]
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert top[token] == logprob == max(top.values())
    assert [model.id for model in client.models.list()] == ["pair"]
    assert client.models.retrieve("pair").owned_by == "edgespec"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_seed_stop_and_logprobs_of_chats(client: openai.OpenAI) -> None:
    def story(**options: object) -> openai.types.chat.ChatCompletion:
        return client.chat.completions.create(model="pair", messages=STORY, max_completion_tokens=40, **options)

    assert story(seed=7).choices[0].message.content == story(seed=7).choices[0].message.content
    assert story(seed=7, extra_body={"edgespec": {"speculation": False}}).choices[0].message.content == (
        story(seed=7).choices[0].message.content
    )
    assert len({story().choices[0].message.content for _ in range(4)}) > 1  # without a seed, another text each time
    stopped = story(temperature=0, stop=["Anna"]).choices[0]
    assert "Anna" not in stopped.message.content
    assert stopped.finish_reason == "stop"
    content = story(temperature=0, logprobs=True).choices[0].logprobs.content
    assert len(content) == 40
    assert all(item.logprob <= 0 for item in content)
    for item in story(temperature=0, logprobs=True, top_logprobs=5).choices[0].logprobs.content:
        assert (item.top_logprobs[0].token, item.top_logprobs[0].logprob) == (item.token, item.logprob)
        assert len({other.token for other in item.top_logprobs}) == 5
        assert bytes(item.bytes).decode(errors="replace") == item.token
    with pytest.raises(openai.BadRequestError, match="top_logprobs"):
        story(top_logprobs=2)
    with pytest.raises(openai.BadRequestError, match="top_logprobs"):
        story(logprobs=True, top_logprobs=21)


def test_a_json_schema_is_kept_under_speculation(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    texts = set()
    for speculation in (True, False):
        done = client.chat.completions.create(
            model="pair",
            messages=STORY,
            temperature=0,
            response_format=form,
            extra_body={"edgespec": {"speculation": speculation}},
        )
        assert done.choices[0].finish_reason == "stop"
        jsonschema.validate(json.loads(done.choices[0].message.content), schema)
        texts.add(done.choices[0].message.content)
    assert len(texts) == 1


def test_the_first_byte_does_not_wait_for_the_answer(server: Running, slow: None) -> None:
    body = {"messages": STORY, "max_tokens": 60, "stream": True, "edgespec": ENDLESS}
    with httpx2.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=60) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        first = next(lines)
        assert "assistant" in first
        assert httpx2.get(f"{server.url}/v1/edgespec").json()["running"] == 1  # it still writes
        assert [line for line in lines if line][-1] == "data: [DONE]"


def test_a_client_that_leaves_stops_the_work(server: Running, slow: None) -> None:
    for stream in (True, False):
        body = {"messages": STORY, "stream": stream, "edgespec": ENDLESS}
        place = f"{server.url}/v1/chat/completions"
        with contextlib.suppress(httpx2.ReadTimeout), httpx2.stream("POST", place, json=body, timeout=0.3) as response:
            next(response.iter_lines())
            assert stream  # an answer that is not streamed does not begin within the time
        deadline = time.monotonic() + 5
        while httpx2.get(f"{server.url}/v1/edgespec").json()["running"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert "edgespec_cancelled_total" in httpx2.get(f"{server.url}/metrics").text
    done = httpx2.post(f"{server.url}/v1/chat/completions", json={"messages": QUESTION, "temperature": 0}, timeout=60)
    assert done.json()["choices"][0]["message"]["content"] == "The capital of France is Paris."


def test_conversations_that_take_turns_pay_for_what_is_new(client: openai.OpenAI) -> None:
    talks = [[{"role": "user", "content": f"{name} walked to the garden. " * 20}] for name in ("Anna", "Ben", "Clara")]
    for turn in range(2):
        for messages in talks:
            done = client.chat.completions.create(model="pair", messages=messages, temperature=0, max_completion_tokens=20)
            said, usage = done.choices[0].message.content, done.usage
            if turn:
                assert usage.prompt_tokens - usage.prompt_tokens_details.cached_tokens < 40 < 100 < usage.prompt_tokens
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "And then?"}]


def test_fifty_clients_at_once_are_answered_or_told_to_come_again(server: Running) -> None:
    names = ["Anna", "Tom", "Mia", "Ben", "Lily"]
    alone = {
        name: server.runtime.generate(f"It was a sunny morning, and {name} walked to the", max_tokens=16).text for name in names
    }
    peak, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            peak[0] = max(peak[0], server.runtime.memory_used)
            time.sleep(0.01)

    def ask(number: int) -> tuple[str, int, str]:
        name = names[number % len(names)]
        body = {"prompt": f"It was a sunny morning, and {name} walked to the", "max_tokens": 16, "temperature": 0}
        response = httpx2.post(f"{server.url}/v1/completions", json=body, timeout=120)
        if response.status_code == 503:
            assert int(response.headers["retry-after"]) >= 1
            return name, 503, ""
        return name, response.status_code, response.json()["choices"][0]["text"]

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(50) as pool:
        done = list(pool.map(ask, range(50)))
    stop.set()
    watcher.join()
    assert {status for _, status, _ in done} <= {200, 503}
    answered = [(name, text) for name, status, text in done if status == 200]
    assert len(answered) >= 9
    assert all(text == alone[name] for name, text in answered)
    assert peak[0] <= server.runtime.plan.budget


def test_it_works_through_errors_of_the_engine(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise EngineError("the engine failed: try again")

    body = {"messages": QUESTION, "temperature": 0}
    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "_verify", breaks)
        failed = httpx2.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
        assert failed.status_code == 500
        assert failed.json()["error"]["code"] == "EngineError"
        streamed = httpx2.post(f"{server.url}/v1/chat/completions", json=body | {"stream": True}, timeout=60)
        assert streamed.status_code == 500
    assert httpx2.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).status_code == 200


def test_metrics_and_status_tell_what_happened(http: httpx2.Client) -> None:
    before = http.get("/metrics").text
    http.post("/v1/chat/completions", json={"messages": QUESTION, "temperature": 0})
    after = http.get("/metrics").text

    def value(text: str, name: str) -> float:
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"edgespec_{name} "))

    assert value(after, "tokens_total") > value(before, "tokens_total")
    assert value(after, "budget_bytes") == 1 << 30
    status = http.get("/v1/edgespec").json()
    assert status["last"]["tokens"] > 0
    assert status["budget_bytes"] == 1 << 30


def test_tool_calls_need_a_template_that_knows_tools(http: httpx2.Client) -> None:
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    refused = http.post("/v1/chat/completions", json={"messages": QUESTION, "tools": tools})
    assert refused.status_code == 400
    assert "knows no tools" in refused.json()["error"]["message"]


def test_the_published_document_is_served(http: httpx2.Client) -> None:
    assert http.get("/openapi.json").json() == document()


def test_a_server_that_is_full_says_so_before_the_stream_begins(server: Running, slow: None) -> None:
    body = {"messages": STORY, "stream": True, "edgespec": ENDLESS}
    with served(server.runtime, waiting=0) as full, httpx2.Client(base_url=full.url, timeout=60) as other:
        assert other.get("/health").status_code == 200
        with other.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = response.iter_lines()  # dropped, it would close the connection
            next(lines)
            refused = other.post("/v1/chat/completions", json=body)
            assert refused.status_code == 503
            assert refused.headers["retry-after"].isdigit()
