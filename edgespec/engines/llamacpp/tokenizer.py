"""The model's own tokenizer, as the engine implements it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edgespec.engines.llamacpp.library import llama
from edgespec.engines.llamacpp.params import load_file
from edgespec.errors import EngineError

__all__ = ["LlamaTokenizer", "opened_tokenizer"]


class LlamaTokenizer:
    """`vocabulary` is the engine's, valid as long as the model."""

    def __init__(self, model: Any) -> None:
        self.vocabulary = llama().llama_model_get_vocab(model)
        self._pieces: dict[int, bytes] = {}
        self.size = int(llama().llama_vocab_n_tokens(self.vocabulary))

    def encode(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        data = text.encode("utf-8", "replace")
        room = len(data) + 8
        for _ in range(2):
            buffer = (ctypes.c_int32 * room)()
            count = llama().llama_tokenize(self.vocabulary, data, len(data), buffer, room, bos, special)
            if count >= 0:
                return list(buffer[:count])
            room = -count
        raise EngineError("the engine cannot tokenize this text: please report it")

    def piece(self, token: int) -> bytes:
        if token not in self._pieces:
            buffer = ctypes.create_string_buffer(64)
            count = llama().llama_token_to_piece(self.vocabulary, token, buffer, len(buffer), 0, False)
            if count < 0:
                buffer = ctypes.create_string_buffer(-count)
                count = llama().llama_token_to_piece(self.vocabulary, token, buffer, len(buffer), 0, False)
            self._pieces[token] = buffer.raw[: max(0, count)]
        return self._pieces[token]

    def ends(self, token: int) -> bool:
        return bool(llama().llama_vocab_is_eog(self.vocabulary, token))

    @property
    def adds_bos(self) -> bool:
        return bool(llama().llama_vocab_get_add_bos(self.vocabulary))


@contextmanager
def opened_tokenizer(path: str) -> Iterator[LlamaTokenizer]:
    """A model's tokenizer alone, without its weights. Raises EngineError."""
    model = load_file(path, mapped=False, repack=False, vocabulary_only=True)
    try:
        yield LlamaTokenizer(model)
    finally:
        llama().llama_model_free(model)
