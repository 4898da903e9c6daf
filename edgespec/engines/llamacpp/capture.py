"""Keys and queries of some layers, taken while the engine computes them: what a retrieval view is chosen by."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgespec.engines.llamacpp.callbacks import Callbacks
from edgespec.engines.llamacpp.pointers import floats_at
from edgespec.types import ModelHeader

__all__ = ["Capture"]

_PARTS = ("Kcur", "Qcur")  # the engine's names; several nodes have them, the rotated ones are attended with
_QUERIES = 8  # newest that have a say


class Capture:
    """Keys of all committed tokens, and the newest queries, of `layers`; float16 and float32."""

    def __init__(self, header: ModelHeader, layers: Sequence[int], capacity: int) -> None:
        self._layers, self._size = tuple(layers), header.key_size
        self._heads = (header.kv_heads[self._layers[0]], header.heads)
        self._keys = np.zeros((capacity, len(self._layers), self._heads[0], self._size), np.float16)
        self._means: dict[int, NDArray[np.float32]] = {}  # chunk size -> means of the first whole chunks, as long as they hold
        self._queries: deque[NDArray[np.float32]] = deque(maxlen=_QUERIES)
        self._pass: dict[tuple[int, int], NDArray[np.float32]] = {}  # (layer, part) -> rows of the last pass
        self._tree: dict[int, tuple[NDArray[np.float16], NDArray[np.float32]]] = {}  # node -> its keys and queries
        wanted = [layer * len(_PARTS) + part for layer in self._layers for part in range(len(_PARTS))]
        self.callbacks = Callbacks(header.layers, wanted, self._see, parts=_PARTS, operation="ROPE")

    def commit_rows(self, count: int, position: int) -> None:
        """The first `count` rows of the last pass are the tokens from `position` on."""
        if not count:
            return  # as in most passes, which are of nodes alone
        self._forget(position)
        self._keys[position : position + count] = self._rows(0)[:count]
        self._queries.extend(self._rows(1)[max(0, count - _QUERIES) : count])

    def hold_nodes(self, first: int, offset: int, count: int) -> None:
        """Rows `offset`.. of the last pass are the nodes `first`.. of the tree."""
        keys, queries = self._rows(0), self._rows(1)
        for place in range(count):
            self._tree[first + place] = keys[offset + place], queries[offset + place]

    def commit_nodes(self, path: Sequence[int], position: int, keep: Sequence[int]) -> None:
        """The nodes of `path` are the tokens from `position` on; those of `keep` are the next tree, renumbered."""
        self._forget(position)
        for place, node in enumerate(path):
            self._keys[position + place], queries = self._tree[node]
            self._queries.append(queries)
        self._tree = {place: self._tree[node] for place, node in enumerate(keep) if node in self._tree}

    def means(self, length: int, chunk: int) -> NDArray[np.float32]:
        """(chunks, layers, key heads, size): the mean key of every whole chunk of the first `length` tokens."""
        known = self._means.get(chunk, np.empty((0, *self._keys.shape[1:]), np.float32))[: length // chunk]
        new = self._keys[len(known) * chunk : length // chunk * chunk]
        fresh = new.reshape(-1, chunk, *self._keys.shape[1:]).mean(axis=1, dtype=np.float32)
        self._means[chunk] = np.concatenate([known, fresh])
        return self._means[chunk]

    def _forget(self, position: int) -> None:
        """Keys from `position` on are about to change."""
        self._means = {chunk: means[: position // chunk] for chunk, means in self._means.items()}

    def queries(self) -> NDArray[np.float32]:
        """(queries, layers, heads, size)"""
        return np.array(self._queries).reshape(-1, len(self._layers), self._heads[1], self._size)

    def _rows(self, part: int) -> NDArray[np.float32]:
        """(rows, layers, heads, size)"""
        return np.stack([self._pass[layer, part] for layer in self._layers], axis=1)

    def _see(self, key: int, before: bool, tensor: int) -> None:
        if before:
            return
        layer, part = divmod(key, len(_PARTS))
        self._pass[layer, part] = floats_at(tensor, self._size).reshape(-1, self._heads[part], self._size).copy()
