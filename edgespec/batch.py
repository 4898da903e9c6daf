"""Many prompts from one file to another, one JSON object a line, resumable after any end.

Every answer is on the disk before the next is begun. A line of the output names the line of the input it answers, and a
digest of it, so that what was done is known to belong to what is asked.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from edgespec.errors import Cancelled, ContextFull, ModelError, RuntimeFault, UsageError
from edgespec.runtime import Runtime
from edgespec.types import Completion

__all__ = ["Batch", "Task"]

_MOST_LINE = 8 << 20


@dataclass(frozen=True)
class Task:
    """Line `number`, from 0, blank ones not counted, asks for this; `digest` names its bytes."""

    number: int
    digest: str
    request: dict[str, Any]

    def answer(self, runtime: Runtime) -> dict[str, Any]:
        """What goes into the output. Raises what ends a batch: Cancelled, and faults that the next line may meet too."""
        head = {"line": self.number, "digest": self.digest} | ({"id": self.request["id"]} if "id" in self.request else {})
        try:
            done = self._generate(runtime)
        except (UsageError, ModelError, ContextFull) as error:
            return head | {"error": str(error)}
        if done.finish_reason == "cancelled":
            raise Cancelled("the batch was stopped: run it again to go on")
        stats = done.statistics
        return head | {
            "text": done.text, "finish_reason": done.finish_reason, "prompt_tokens": stats.prompt_tokens,
            "tokens": stats.tokens, "tokens_per_second": stats.tokens_per_second, "verify": stats.verify,
        }  # fmt: skip

    def _generate(self, runtime: Runtime) -> Completion:
        options = {name: value for name, value in self.request.items() if name not in ("id", "prompt", "messages")}
        if ("prompt" in self.request) == ("messages" in self.request):
            raise UsageError("a line needs either a prompt or messages")
        try:
            return runtime.generate(self.request["prompt" if "prompt" in self.request else "messages"], **options)
        except (TypeError, AttributeError) as error:
            raise UsageError(f"a field has a value of the wrong kind ({error})") from error


class Batch:
    """From `source` to `out`. Opening checks the whole input and what is done of it, and answers nothing.

    Raises UsageError for input that is not JSON lines, or output that answers another input.
    """

    def __init__(self, source: Path, out: Path) -> None:
        self._out = out
        self.tasks = list(_tasks(source))
        self.done = self._finished()

    def _finished(self) -> set[int]:
        """Lines that are answered; half a line at the end, which a kill can leave, is cut off."""
        if not self._out.exists():
            return set()
        with _opened(self._out, "r+b") as file:
            whole, found = 0, set()
            for line in file:
                if not line.endswith(b"\n"):
                    break
                found.add(self._answered(line))
                whole += len(line)
            file.truncate(whole)
        return found

    def _answered(self, line: bytes) -> int:
        try:
            found = json.loads(line)
            number = int(found["line"])
            same = self.tasks[number].digest == found["digest"]
        except (ValueError, KeyError, IndexError, TypeError):
            same = False
        if not same:
            raise UsageError(f"{self._out} answers another input: name another output, or remove it")
        return number

    def run(self, runtime: Runtime) -> Iterator[dict[str, Any]]:
        """Answer what is left, in order; each answer is on the disk when it is yielded."""
        with _opened(self._out, "ab") as file:
            for task in self.tasks:
                if task.number in self.done:
                    continue
                answer = task.answer(runtime)
                _append(file, json.dumps(answer, ensure_ascii=False).encode() + b"\n", self._out)
                self.done.add(task.number)
                yield answer


def _append(file: BinaryIO, line: bytes, path: Path) -> None:
    try:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        raise RuntimeFault(f"{path} cannot be written ({error.strerror}): free some space and run it again") from error


def _opened(path: Path, mode: str) -> BinaryIO:
    try:
        return path.open(mode, buffering=-1)  # type: ignore[return-value]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _tasks(source: Path) -> Iterator[Task]:
    with _opened(source, "rb") as file:
        number = 0
        while line := file.readline(_MOST_LINE + 1):
            if len(line) > _MOST_LINE:
                raise UsageError(f"{source}, line {number + 1} is longer than {_MOST_LINE >> 20} MiB")
            if not line.strip():
                continue
            try:
                request = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{source}, line {number + 1} is not JSON: {error}") from None
            if not isinstance(request, dict):
                raise UsageError(f"{source}, line {number + 1} is not a JSON object")
            yield Task(number, hashlib.sha256(line.strip()).hexdigest()[:16], request)
            number += 1
