from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.errors import UsageError
from edgespec.speculation.drafting.datastore import Datastore, write_datastore
from edgespec.speculation.drafting.lookup import LONGEST, SpokenText
from edgespec.types import Vocabulary

VOCABULARY = Vocabulary("gpt2", "", tuple(bytes([value]) for value in range(6)), None, None)
Tokens = st.lists(st.integers(0, 4), max_size=60)


def spoken(tokens: list[int], largest: int = 1000) -> SpokenText:
    text = SpokenText(largest)
    text.extend(tokens)
    return text


def test_the_longest_match_comes_first_and_no_two_begin_alike() -> None:
    text = [1, 2, 3, 9, 9, 7, 2, 3, 8, 8, 7, 2, 3, 8, 5, 1, 2, 3]
    found = list(spoken(text).guesses(text[-LONGEST:], 3))
    assert [(guess.tokens, guess.matched) for guess in found] == [((9, 9, 7), 3), ((8, 5, 1), 2)]


@given(Tokens)
def test_a_guess_is_what_followed_the_same_tokens(text: list[int]) -> None:
    for guess in spoken(text).guesses(text[-LONGEST:], 5):
        said = [*text[len(text) - guess.matched :], *guess.tokens]
        assert guess.matched >= 2
        goes_on = [*text, *guess.tokens]  # the present is said too: a text that repeats goes on repeating
        assert any(goes_on[place : place + len(said)] == said for place in range(len(text) - guess.matched))


@given(Tokens, Tokens)
def test_conversations_do_not_run_into_each_other(first: list[int], second: list[int]) -> None:
    text = spoken(first)
    text.end()
    text.extend(second)
    for guess in text.guesses(second[-LONGEST:], 5):
        said = [*second[len(second) - guess.matched :], *guess.tokens]
        goes_on = [*second, *guess.tokens]
        ends = len(second) - guess.matched
        assert any(first[place : place + len(said)] == said for place in range(len(first))) or any(
            goes_on[place : place + len(said)] == said for place in range(ends)
        )


def test_old_text_is_forgotten_and_memory_is_bounded() -> None:
    text = spoken([1, 2, 3, 4] + [5, 6] * 100, largest=64)
    assert len(text) <= 65
    assert not list(text.guesses([1, 2], 2))
    assert next(text.guesses([6, 5, 6], 3)).tokens == (5, 6, 5)


def test_a_datastore_answers_with_the_most_frequent_continuations(tmp_path: Path) -> None:
    write_datastore([[1, 2, 3, 0], [4, 1, 2, 3, 5], [1, 2, 4], [2, 3, 5, 5]], VOCABULARY, tmp_path / "store")
    store = Datastore(tmp_path / "store", VOCABULARY)
    assert len(store) == 20
    assert [guess.tokens for guess in store.guesses([0, 1, 2], 2)] == [(3, 0), (4,)] or [
        guess.tokens[0] for guess in store.guesses([0, 1, 2], 2)
    ] == [3, 4]
    longest = next(store.guesses([4, 1, 2], 2))
    assert (longest.tokens, longest.matched) == ((3, 5), 3)
    assert next(store.guesses([2, 3], 9)).tokens[0] == 5
    assert not list(store.guesses([5, 0], 2))


@given(st.lists(Tokens, min_size=1, max_size=5), Tokens)
def test_a_datastore_guesses_what_its_texts_say(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[int]], recent: list[int]
) -> None:
    if not any(texts):
        return
    folder = tmp_path_factory.mktemp("store") / "s"
    write_datastore(texts, VOCABULARY, folder)
    for guess in islice(Datastore(folder, VOCABULARY).guesses(recent, 4), 5):
        said = [*recent[len(recent) - guess.matched :], *guess.tokens]
        assert any(text[place : place + len(said)] == said for text in texts for place in range(len(text)))


def test_what_is_no_datastore_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with pytest.raises(UsageError, match="no datastore"):
        Datastore(folder, VOCABULARY)
    with pytest.raises(UsageError, match="no text"):
        write_datastore([[]], VOCABULARY, folder)
    write_datastore([[1, 2, 3]], VOCABULARY, folder)
    write_datastore([[1, 2, 3, 4]], VOCABULARY, folder)  # again: the old one is replaced
    assert len(Datastore(folder, VOCABULARY)) == 5
    with pytest.raises(UsageError, match="another vocabulary"):
        Datastore(folder, Vocabulary("llama", "", VOCABULARY.tokens, None, None))
    np.save(folder / "order.npy", np.zeros(2, np.int32))
    with pytest.raises(UsageError, match="damaged"):
        Datastore(folder, VOCABULARY)
    (folder / "order.npy").write_bytes(b"junk")
    with pytest.raises(UsageError, match="no datastore"):
        Datastore(folder, VOCABULARY)
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="no datastore"):
        write_datastore([[1]], VOCABULARY, tmp_path / "mine")
