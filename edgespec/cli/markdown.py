"""Markdown on a terminal while it is being written: every character is styled as it comes and never written again.

So nothing flickers and scrollback stays right. Only what can be told from the left is styled: headings, **strong** and
`code`, fences, bullets; everything else is shown as it is.
"""

from __future__ import annotations

__all__ = ["MarkdownStyler"]

_STRONG, _CODE, _HEADING, _FENCE, _BULLET = "\x1b[1m", "\x1b[36m", "\x1b[1;34m", "\x1b[2m", "\x1b[33m"
_RESET = "\x1b[0m"
_MARKS = "*`"


class MarkdownStyler:
    """`feed` returns what can be shown by now; `finish` the rest. How the text is cut into pieces makes no difference."""

    def __init__(self) -> None:
        self._held = ""  # marks, or the begin of a line, that more text may change
        self._begin = True  # whether a line begins here
        self._fenced = self._strong = self._code = self._heading = False

    def feed(self, text: str) -> str:
        out = []
        for character in text:
            self._held += character
            while self._held and (shown := self._take(final=False)) is not None:
                out.append(shown)
        return "".join(out)

    def finish(self) -> str:
        out = []
        while self._held and (shown := self._take(final=True)) is not None:
            out.append(shown)
        styled = self._strong or self._code or self._heading or self._fenced
        self._fenced = self._strong = self._code = self._heading = False
        return "".join(out) + (_RESET if styled else "")

    def _take(self, *, final: bool) -> str | None:
        """One styled piece off what is held; None while it may still become something else."""
        if self._begin:
            return self._line_begin(final)
        first = self._held[0]
        if first == "\n":
            return self._pop(1, self._line_end())
        if self._fenced or first not in _MARKS or (self._code and first != "`"):
            return self._pop(1, first)
        if first == "`":
            self._code = not self._code
            return self._pop(1, _CODE if self._code else self._style())
        if len(self._held) == 1 and not final:
            return None
        if self._held.startswith("**"):
            self._strong = not self._strong
            return self._pop(2, _STRONG if self._strong else self._style())
        return self._pop(1, first)

    def _line_begin(self, final: bool) -> str | None:
        line = self._held
        if "```".startswith(line.strip(" ")) and line.strip(" ") != "```" and not final:
            return None
        if line.lstrip(" ").startswith("```"):
            if not line.endswith("\n") and not final:
                return None  # the language, up to the end of the line
            self._fenced = not self._fenced
            return self._pop(
                len(line), _FENCE + line.rstrip("\n") + ("" if self._fenced else _RESET) + "\n" * line.endswith("\n")
            )
        if not self._fenced and not final and line in ("#", "##", "###", "####", "-", "*"):
            return None
        self._begin = False
        if self._fenced:
            return self._pop(0, "") if line == "\n" else self._pop(1, line[0])
        if line.lstrip("#").startswith(" ") and 1 <= len(line) - len(line.lstrip("#")) <= 4:
            self._heading = True
            return self._pop(len(line), _HEADING)
        if line[:2] in ("- ", "* "):
            return self._pop(2, f"{_BULLET}•{_RESET} ")
        return ""

    def _pop(self, count: int, shown: str) -> str:
        self._held = self._held[count:]
        return shown

    def _line_end(self) -> str:
        self._begin = True
        styled = self._strong or self._code or self._heading
        self._strong = self._code = self._heading = False
        return (_RESET if styled else "") + "\n"

    def _style(self) -> str:
        """After a style that ended inside another."""
        return _RESET + (_HEADING if self._heading else "") + (_STRONG if self._strong else "")
