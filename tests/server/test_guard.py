"""Who may ask what: over the socket, with requests that no client library would send."""

import json
import socket
from collections.abc import Iterator

import httpx2
import pytest
from conftest_server import Running, served

from edgespec.errors import UsageError
from edgespec.server.guard import Rules, is_loopback

CHAT = "/v1/chat/completions"
QUESTION = {"messages": [{"role": "user", "content": "Hello!"}], "temperature": 0, "max_tokens": 2}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]", "localhost.evil", "["]
)
def test_other_names_are_refused(http: httpx2.Client, host: str) -> None:
    answer = http.get("/v1/models", headers={"host": host})
    assert answer.status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8080", "LOCALHOST"])
def test_its_own_names_are_not(http: httpx2.Client, host: str) -> None:
    assert http.get("/v1/models", headers={"host": host}).status_code == 200


def test_pages_of_other_sites_may_not_ask_unless_allowed(server: Running) -> None:
    headers = {"origin": "https://evil.example"}
    answer = httpx2.post(server.url + CHAT, json=QUESTION, headers=headers)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert httpx2.post(server.url + CHAT, json=QUESTION, headers={"origin": server.url}).status_code == 200
    with served(server.runtime, Rules(origins=("https://friend.example",))) as open_one:
        friend = httpx2.post(open_one.url + CHAT, json=QUESTION, headers={"origin": "https://friend.example"})
        assert friend.headers["access-control-allow-origin"] == "https://friend.example"
        preflight = {"origin": "https://friend.example", "access-control-request-method": "POST"}
        assert httpx2.options(open_one.url + CHAT, headers=preflight).status_code == 200
        assert httpx2.post(open_one.url + CHAT, json=QUESTION, headers=headers).status_code == 403


def test_a_key_is_asked_for_where_there_is_one(server: Running) -> None:
    with served(server.runtime, Rules(key="sesame")) as locked:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "sesam"}):
            assert httpx2.get(f"{locked.url}/v1/models", headers=headers).status_code == 401
        assert httpx2.get(f"{locked.url}/v1/models", headers={"authorization": "Bearer sesame"}).status_code == 200
        assert httpx2.get(f"{locked.url}/health").status_code == 200
        assert httpx2.get(f"{locked.url}/").status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_without_a_key_nobody_beyond_this_machine_is_served(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(UsageError, match="--api-key"):
        Rules(host)
    Rules(host, key="sesame")


BAD = [
    b"", b"{", b"[]", b"null", b'"text"', b'{"messages": []}', b'{"messages": "hi"}',
    b'{"messages": [{"role": "king", "content": "hi"}]}', b'{"messages": [{"role": "user", "content": 5}]}',
    b'{"messages": [{"role": "user", "content": "hi"}], "temperature": NaN}',
    b'{"messages": [{"role": "user", "content": "hi"}], "temperature": 1e999}',
    b'{"messages": [{"role": "user", "content": "hi"}], "temperature": -1}',
    b'{"messages": [{"role": "user", "content": "hi"}], "top_p": 0}',
    b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 0}',
    b'{"messages": [{"role": "user", "content": "hi"}], "seed": 4294967296}',
    b'{"messages": [{"role": "user", "content": "hi"}], "n": 2}',
    b'{"messages": [{"role": "user", "content": "hi"}], "colour": "red"}',
    b'{"messages": [{"role": "user", "content": "hi"}], "stop": [""]}',
    b'{"messages": [{"role": "user", "content": "hi"}], "edgespec": {"grammar": "root ::= ("}}',
    b'{"messages": [{"role": "user", "content": "hi"}], "response_format": {"type": "json_schema"}}',
    b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000,
]  # fmt: skip


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_bad_requests_are_refused_with_a_reason(http: httpx2.Client, body: bytes) -> None:
    answer = http.post(CHAT, content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_what_does_not_fit_the_context_is_an_error(http: httpx2.Client) -> None:
    answer = http.post(CHAT, json={"messages": [{"role": "user", "content": "word " * 5000}]})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_huge_bodies_are_refused_whether_they_say_so_or_not(server: Running) -> None:
    assert httpx2.post(server.url + CHAT, content=b"x" * (9 << 20)).status_code == 413

    def pieces() -> Iterator[bytes]:
        for _ in range(10):
            yield b"x" * (1 << 20)

    assert httpx2.post(server.url + CHAT, content=pieces()).status_code == 413


def test_unknown_places_and_methods_are_errors_of_the_same_shape(http: httpx2.Client) -> None:
    for answer, status in ((http.get("/v1/nowhere"), 404), (http.get(CHAT), 405), (http.post("/health"), 405)):
        assert answer.status_code == status
        assert answer.json()["error"]["message"]
    assert http.get("/page/../app.py").status_code == 404
    assert http.get("/page/%2e%2e/app.py").status_code == 404


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"]
)
def test_what_is_no_http_is_answered_and_survived(server: Running, head: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(head)
        assert raw.recv(4096)[:12].split()[1][:1] == b"4"
    assert httpx2.get(f"{server.url}/health").json() == {"status": "ok"}


def test_nobody_is_told_more_than_they_asked(http: httpx2.Client) -> None:
    answer = http.get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert json.loads(http.get("/health").text) == {"status": "ok"}
