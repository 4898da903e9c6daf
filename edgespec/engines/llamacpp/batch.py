"""A reusable `llama_batch`: tokens with positions, sequence ids and whether their logits are wanted."""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.engines.llamacpp.library import llama

__all__ = ["Batch"]


class Batch:
    def __init__(self, capacity: int, lanes: int) -> None:
        self.raw = llama().llama_batch_init(capacity, 0, lanes)
        self.tokens: list[int] = []

    def clear(self) -> None:
        self.tokens = []
        self.raw.n_tokens = 0

    def add(self, token: int, position: int, lanes: Sequence[int], *, output: bool) -> None:
        raw, row = self.raw, len(self.tokens)
        raw.token[row], raw.pos[row], raw.logits[row] = token, position, output
        raw.n_seq_id[row] = len(lanes)
        ids = raw.seq_id[row]
        for index, lane in enumerate(lanes):
            ids[index] = lane
        self.tokens.append(token)
        raw.n_tokens = row + 1

    def close(self) -> None:
        llama().llama_batch_free(self.raw)
