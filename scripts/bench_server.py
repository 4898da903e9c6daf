"""What clients of `edgespec serve` wait for: ``python scripts/bench_server.py --target T.gguf --drafter D.gguf --budget 600MiB``.

A server process for each row, driven over loopback: the first byte of a streamed answer against the whole of it; fifty clients
at once (answered, told to come again, mixed up, the process's peak against its budget); and conversations that take turns,
with and without their keys and values being kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx2
import psutil
from bench_views import long_texts

from edgespec.memory.budget import format_size

Answer = tuple[str, float, float, dict[str, Any]]
CLIENTS, NAMES = 50, ("Anna", "Tom", "Mia", "Ben", "Lily")


class Server:
    """The process, its client, and the most memory it was seen with."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.http = httpx2.Client(base_url=url, timeout=600)
        self.process, self.peak, self._over = psutil.Process(process.pid), 0, threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.peak = max(self.peak, self.process.memory_info().rss)

    def close(self) -> None:
        self._over.set()
        self._watcher.join()
        self.http.close()


@contextmanager
def served(args: argparse.Namespace, *more: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "edgespec", "serve", "--port", "0", "--budget", args.budget, "--context", "2048", *more]
    for option, value in (("--target", args.target), ("--drafter", args.drafter)):
        command += [option, value] if value else []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "listening on" in line)
        server = Server(process, line.split("listening on ")[1].split()[0])
        try:
            yield server
        finally:
            server.close()
            process.terminate()


def answer(server: Server, messages: list[dict[str, str]], tokens: int) -> Answer:
    """The streamed text, the seconds to its first piece and to its end, and its usage."""
    body = {
        "messages": messages, "max_tokens": tokens, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}
    }  # fmt: skip
    began, first, said = time.perf_counter(), 0.0, ""
    usage: dict[str, Any] = {}
    with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()
        for line in lines:
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            usage = event["usage"] or usage
            piece = event["choices"][0]["delta"].get("content", "") if event["choices"] else ""
            first = first or (time.perf_counter() - began if piece else 0.0)
            said += piece
    return said, first, time.perf_counter() - began, usage


def medians(runs: Sequence[Answer]) -> tuple[float, float]:
    """Seconds to the first piece and to the end."""
    return statistics.median(run[1] for run in runs), statistics.median(run[2] for run in runs)


def first_bytes(args: argparse.Namespace) -> Iterator[str]:
    with served(args) as server:
        asked = [[{"role": "user", "content": f"Tell me a short story about {name}."}] for name in NAMES]
        runs = [answer(server, messages, 128) for messages in asked][1:]  # the first warms up
    first, whole = medians(runs)
    yield f"| first byte of a streamed answer | {first * 1000:.0f} ms, of {whole * 1000:.0f} ms for the whole |"


def crowd(args: argparse.Namespace) -> Iterator[str]:
    def ask(number: int) -> tuple[str, int, str]:
        name = NAMES[number % len(NAMES)]
        body = {"prompt": f"It was a sunny morning, and {name} walked to the", "max_tokens": 32, "temperature": 0}
        response = server.http.post("/v1/completions", json=body)
        return name, response.status_code, response.json()["choices"][0]["text"] if response.status_code == 200 else ""

    with served(args, "--max-waiting", "32") as server:
        alone = {ask(number)[0]: ask(number)[2] for number in range(len(NAMES))}
        began = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as pool:
            done = list(pool.map(ask, range(CLIENTS)))
        seconds, peak = time.perf_counter() - began, server.peak
    answered = [(name, text) for name, status, text in done if status == 200]
    again, mixed = sum(status == 503 for _, status, _ in done), sum(text != alone[name] for name, text in answered)
    yield (
        f"| {CLIENTS} clients at once, 32 may wait | {len(answered)} answered, {again} told to come again, "
        f"{CLIENTS - len(answered) - again} otherwise, {mixed} with another text than alone, {seconds:.1f} s |"
    )
    yield f"| peak of the process meanwhile | {format_size(peak)} of {args.budget} |"


def turns(args: argparse.Namespace) -> Iterator[str]:
    """Second turns of conversations that took their first ones one after the other."""
    texts, cached = long_texts(args.conversations)["documentation"], {}
    waits: dict[str, list[tuple[float, float]]] = {}
    for kept in ("1", str(args.conversations)) * args.pairs:
        with served(args, "--conversations", kept) as server:
            talks = [[{"role": "user", "content": text[: args.characters]}] for text in texts]
            for messages in talks:
                messages += [
                    {"role": "assistant", "content": answer(server, messages, 16)[0]},
                    {"role": "user", "content": "What is the capital of France?"},
                ]
            runs = [answer(server, messages, 16) for messages in talks]
        waits.setdefault(kept, []).append(medians(runs))
        cached[kept] = [run[3]["prompt_tokens_details"]["cached_tokens"] for run in runs]
        length = round(statistics.median(run[3]["prompt_tokens"] for run in runs))
    for kept, seconds in waits.items():
        first, whole = (spread([pair[place] for pair in seconds]) for place in (0, 1))
        yield (
            f"| second turn, {args.conversations} conversations of about {length} tokens, {kept} kept | first byte {first}, "
            f"whole answer {whole}; {cached[kept]} tokens not read again; {args.pairs} servers |"
        )


def spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.0f} ms ({min(seconds) * 1000:.0f} to {max(seconds) * 1000:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target")
    parser.add_argument("--drafter")
    parser.add_argument("--budget", default="600MiB")
    parser.add_argument("--conversations", type=int, default=3)
    parser.add_argument("--characters", type=int, default=3500, help="of a conversation's first message")
    parser.add_argument("--pairs", type=int, default=3)
    args = parser.parse_args()
    print("| what | figure |\n|---|---|")
    for rows in (first_bytes(args), crowd(args), turns(args)):
        for row in rows:
            print(row, flush=True)


if __name__ == "__main__":
    main()
