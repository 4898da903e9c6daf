from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edgespec.text.assemble import TextAssembler


def feed(pieces: list[bytes], stop: tuple[str, ...] = ()) -> tuple[list[str], TextAssembler]:
    assembler = TextAssembler(stop)
    out = [assembler.feed(piece) for piece in pieces]
    return [*out, assembler.finish()], assembler


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(marks)]


@given(st.text(), st.lists(st.integers(0, 1000)))
def test_text_arrives_in_whole_characters_however_it_is_cut(text: str, places: list[int]) -> None:
    text = text.encode("utf-8", "ignore").decode()
    out, _ = feed(cut(text.encode(), places))
    assert "".join(out) == text
    assert all("�" not in piece for piece in out) or "�" in text


@given(st.text("abc", max_size=30), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), st.lists(st.integers(0, 1000)))
def test_nothing_of_a_stop_string_nor_behind_it_is_emitted(text: str, stop: list[str], places: list[int]) -> None:
    """Cut anywhere, the text ends before the stop string that is complete first; the pieces never take back."""
    out, assembler = feed(cut(text.encode(), places), tuple(stop))
    emitted = "".join(out)
    assert text.startswith(emitted)
    assert all(word not in emitted for word in stop)
    assert assembler.stopped == any(word in text for word in stop)
    if not assembler.stopped:
        assert emitted == text


def test_invalid_bytes_are_replaced_and_an_unfinished_character_at_the_end_too() -> None:
    assert "".join(feed([b"a\xff", b"b"])[0]) == "a�b"
    assert feed(["é".encode()[:1]])[0] == ["", "�"]
    assert feed(["é".encode()[:1], "é".encode()[1:]])[0] == ["", "é", ""]
