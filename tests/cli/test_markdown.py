import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from edgespec.cli.markdown import MarkdownStyler

TEXT = "# Title\nSome **strong** and `co*de`.\n- one\n* two\n```py\nx = a * b ** c\n```\n2*3 = 6, #1\n-5\n"
pieces = st.text(alphabet="a *`#-\n\u00e9", max_size=60)


def styled(*parts: str) -> str:
    styler = MarkdownStyler()
    return "".join([*(styler.feed(part) for part in parts), styler.finish()])


@given(pieces, st.lists(st.integers(0, 60), max_size=8))
def test_how_the_text_is_cut_makes_no_difference(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [text[start:end] for start, end in itertools.pairwise(places)]
    assert styled(*parts) == styled(text)


@given(pieces)
def test_nothing_but_marks_is_lost_and_styles_end(text: str) -> None:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", styled(text)).replace("\u2022", "")
    left = iter(text)
    assert all(character in left for character in plain)  # in order
    assert sorted(re.sub(r"[*`#\- ]", "", plain)) == sorted(re.sub(r"[*`#\- ]", "", text))
    codes = re.findall(r"\x1b\[([0-9;]*)m", styled(text))
    assert not codes or codes[-1] == "0"


def test_what_it_looks_like() -> None:
    shown = styled(TEXT)
    assert "\x1b[1;34mTitle\x1b[0m" in shown
    assert "\x1b[1mstrong\x1b[0m" in shown
    assert "\x1b[36mco*de\x1b[0m" in shown
    assert "x = a * b ** c" in shown
    assert "2*3 = 6, #1\n-5" in shown
