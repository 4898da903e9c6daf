"""What a user gives, text or messages, as the tokens a model starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgespec.engines.base import Tokenizer
from edgespec.errors import UsageError
from edgespec.text.template import ChatTemplate, Message
from edgespec.types import ModelHeader

__all__ = ["Prompt", "Prompter"]

Prompt = str | Sequence[Message] | Sequence[int]
"""Plain text to continue, messages for the model's template, or tokens as they are."""


class Prompter:
    """One model's chat template and beginning-of-document rule."""

    def __init__(self, header: ModelHeader) -> None:
        special = [token.decode("utf-8", "replace") if token else "" for token in _special(header)]
        self._template = ChatTemplate(header.chat_template, bos=special[0], eos=special[1])
        self._bos, self._size = special[0], len(header.vocabulary.tokens)

    def tokens(self, prompt: Prompt, tokenizer: Tokenizer, tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Raises UsageError when there are none, or when given ones are not in the vocabulary."""
        if isinstance(prompt, str):
            tokens = tokenizer.encode(prompt, bos=tokenizer.adds_bos)
        elif given := [item for item in prompt if isinstance(item, int)]:
            tokens = given
        else:
            tokens = self._rendered([item for item in prompt if not isinstance(item, int)], tokenizer, tools)
        if not tokens:
            raise UsageError("the prompt is empty: write something")
        if not 0 <= min(tokens) <= max(tokens) < self._size:
            raise UsageError(f"the prompt has tokens outside the vocabulary of {self._size}: check them")
        return tokens

    def _rendered(self, messages: Sequence[Message], tokenizer: Tokenizer, tools: Sequence[Mapping[str, Any]]) -> list[int]:
        text = self._template.render(messages, tools)
        begun = bool(self._bos) and text.startswith(self._bos)
        return tokenizer.encode(text, special=True, bos=tokenizer.adds_bos and not begun)


def _special(header: ModelHeader) -> list[bytes | None]:
    """Texts of the tokens that begin and end a document."""
    vocabulary = header.vocabulary
    return [
        vocabulary.tokens[token] if token is not None and 0 <= token < len(vocabulary.tokens) else None
        for token in (vocabulary.bos, vocabulary.eos)
    ]
