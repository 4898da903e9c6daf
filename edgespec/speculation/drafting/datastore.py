"""A store of the user's own texts to guess from: what followed these tokens there (REST, He et al., 2023).

A folder of three files: all texts as tokens, the order of their suffixes (compared by the first few tokens), and whose
vocabulary the tokens are of. Both arrays are mapped, so that a lookup touches a few pages of them.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgespec.errors import UsageError
from edgespec.speculation.drafting.lookup import BREAK, Guess, distinct, following
from edgespec.types import Vocabulary

__all__ = ["Datastore", "write_datastore"]

_VERSION = 1
_DEPTH = 12  # tokens by which suffixes are sorted
_LONGEST, _SHORTEST = 8, 2  # tokens of context that are looked up
_SAMPLES = 64  # occurrences that are counted


class Datastore:
    """Implements `Source` over a folder that `write_datastore` wrote. Raises UsageError for any other, or vocabulary."""

    name = "datastore"

    def __init__(self, folder: Path, vocabulary: Vocabulary) -> None:
        try:
            about = json.loads((folder / "about.json").read_text())
            self._tokens = np.load(folder / "tokens.npy", mmap_mode="r", allow_pickle=False)
            self._order = np.load(folder / "order.npy", mmap_mode="r", allow_pickle=False)
            sizes = {len(self._tokens), len(self._order), about["tokens"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{folder} is no datastore ({error}): make one with `edgespec datastore build`") from error
        if about.get("version") != _VERSION or len(sizes) != 1:
            raise UsageError(f"{folder} is damaged or of another version: build it again with `edgespec datastore build`")
        if about.get("vocabulary") != _digest(vocabulary):
            raise UsageError(f"{folder} was built for another vocabulary: build one with this --target")

    def __len__(self) -> int:
        """Tokens in it."""
        return len(self._tokens)

    def guesses(self, recent: Sequence[int], most: int) -> Iterator[Guess]:
        """As `Source.guesses`; the likeliest first among those that match equally long."""
        for matched in range(min(_LONGEST, len(recent)), _SHORTEST - 1, -1):
            places = self._places(tuple(recent[-matched:]))
            if places.size:
                found = (following(self._tokens, place, most) for place in _by_count(self._tokens, places + matched))
                return distinct(Guess(said, matched) for said in found)
        return iter(())

    def _places(self, key: tuple[int, ...]) -> NDArray[np.int64]:
        """Where `key` occurs, some of it if often."""

        def prefix(place: int) -> tuple[int, ...]:
            return tuple(self._tokens[place : place + len(key)].tolist())

        first = bisect.bisect_left(self._order, key, key=prefix)
        last = bisect.bisect_right(self._order, key, lo=first, key=prefix)
        some = np.unique(np.linspace(first, last - 1, min(_SAMPLES, last - first)).astype(np.int64))
        return np.asarray(self._order[some], np.int64)


def _by_count(tokens: NDArray[np.int32], places: NDArray[np.int64]) -> list[int]:
    """One of `places` for each token found there, the most frequent first."""
    inside = places[places < len(tokens)]
    firsts: dict[int, int] = {}
    for place, token in zip(inside.tolist(), tokens[inside].tolist(), strict=True):
        firsts.setdefault(token, place)
    counts = Counter(tokens[inside].tolist())
    return [firsts[token] for token, _ in counts.most_common()]


def write_datastore(texts: Iterable[Sequence[int]], vocabulary: Vocabulary, folder: Path) -> int:
    """Build a datastore of tokenized `texts` and put it at `folder`, whole or not at all; returns its tokens."""
    if folder.exists() and not (folder / "about.json").exists():
        raise UsageError(f"{folder} is there and no datastore: choose another --out")
    parts = [np.array([*text, BREAK], np.int32) for text in texts if text]
    if not parts:
        raise UsageError("there is no text in these files: name others")
    tokens = np.concatenate(parts)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".datastore-") as made:
        partial = Path(made) / "new"
        partial.mkdir()
        np.save(partial / "tokens.npy", tokens)
        np.save(partial / "order.npy", _suffix_order(tokens))
        about = {"version": _VERSION, "vocabulary": _digest(vocabulary), "tokens": len(tokens)}
        (partial / "about.json").write_text(json.dumps(about))
        if folder.exists():
            os.rename(folder, Path(made) / "old")
        os.rename(partial, folder)
    return len(tokens)


def _suffix_order(tokens: NDArray[np.int32]) -> NDArray[np.int32]:
    padded = np.concatenate([tokens, np.full(_DEPTH, BREAK, np.int32)])
    columns = [padded[offset : offset + len(tokens)] for offset in reversed(range(_DEPTH))]  # the last is the first key
    return np.lexsort(columns).astype(np.int32)


def _digest(vocabulary: Vocabulary) -> str:
    digest = hashlib.sha256(f"{vocabulary.model} {vocabulary.pre} {len(vocabulary.tokens)}".encode())
    for token in vocabulary.tokens:
        digest.update(token + b"\0")
    return digest.hexdigest()
