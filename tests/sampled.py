"""Sampled answers with and without drafting, on an engine whose KV cache has seen other generations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parity import Judge

import edgespec
from edgespec.types import Completion, SamplingParams

_OPENINGS = [
    "Tell a story about {}", "What is {} plus 4?", "Tell me something about the number {}.", "Repeat after me: red boat {} lamp",
    "Count from {} on.", "Write a poem about {} birds.", "Why is the sky blue? Answer in {} words.",
]  # fmt: skip
_NEXT = "And what happened then?"


@dataclass(frozen=True)
class Answer:
    """`counted`: whether the draw where the texts part is a near-tie, None where they are the same."""

    prompt: tuple[int, ...]
    plain: Completion
    drafted: Completion
    counted: bool | None


def answers(model: edgespec.Runtime, judge: Judge, count: int, **sampling: Any) -> Iterator[Answer]:
    """The seed is the answer's number. Every third goes on with the conversation before, whose beginning is kept."""
    messages: list[dict[str, str]] = []
    plain = None
    for number in range(count):
        said: list[dict[str, str]] = [{"role": "assistant", "content": plain.text}] if plain and number % 3 == 2 else []
        asked = _NEXT if said else _OPENINGS[number % len(_OPENINGS)].format(number)
        messages = [*(messages + said if said else []), {"role": "user", "content": asked}]
        options = {**sampling, "seed": number}
        plain = model.chat(messages, speculate=False, **options)
        model.generate("Once upon a time", max_tokens=8)
        drafted = model.chat(messages, **options)
        prompt = tuple(model.prompt_tokens(messages))
        yield Answer(prompt, plain, drafted, _counted(judge, prompt, plain, drafted, SamplingParams(**options)))


def _counted(
    judge: Judge, prompt: tuple[int, ...], plain: Completion, drafted: Completion, params: SamplingParams
) -> bool | None:
    """A difference is counted where both the plain replay and the drafted answer itself have counted a near-tie by then."""
    try:
        return None if judge.flip(prompt, plain.tokens, drafted.tokens, params) is None else drafted.statistics.near_ties > 0
    except AssertionError:
        return False
