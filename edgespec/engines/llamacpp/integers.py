"""Integers between two bounds, as a GBNF expression: which digits may follow which."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["MOST_DIGITS", "integers_between"]

MOST_DIGITS = 16  # of the engine's own rule for integers, and what a double holds exactly


def integers_between(low: int | None, high: int | None) -> str:
    """An expression for the decimal notations of the integers from `low` to `high`; None is no bound, "" there are none."""
    most: int = 10**MOST_DIGITS - 1
    low, high = max(-most, -most if low is None else low), min(most, most if high is None else high)
    ways = []
    if low < 0 and low <= high:
        ways.append(f'"-" ({_naturals(max(1, -high), -low)})')
    if high >= 0 and low <= high:
        ways.append(_naturals(max(0, low), high))
    return " | ".join(ways)


def _naturals(low: int, high: int) -> str:
    return " | ".join(_of_lengths(low, high))


def _of_lengths(low: int, high: int) -> Iterator[str]:
    """One way for each number of digits."""
    for count in range(len(str(low)), len(str(high)) + 1):
        least, most = 10 ** (count - 1) if count > 1 else 0, 10**count - 1
        yield _digits(str(max(low, least)), str(min(high, most)))


def _digits(low: str, high: str) -> str:
    """From `low` to `high`, both of the same length."""
    if low == high:
        return f'"{low}"'
    rest = len(low) - 1
    nines, zeros = "9" * rest, "0" * rest
    if low[1:] == zeros and high[1:] == nines:
        return _span(low[0], high[0]) + (f" [0-9]{{{rest}}}" if rest else "")
    if low[0] == high[0]:
        return f'"{low[0]}" ({_digits(low[1:], high[1:])})'
    first, last = int(low[0]), int(high[0])
    ways = []
    if low[1:] != zeros:
        ways.append(f'"{first}" ({_digits(low[1:], nines)})')
        first += 1
    if high[1:] != nines:
        ways.append(f'"{last}" ({_digits(zeros, high[1:])})')
        last -= 1
    if first <= last:
        ways.append(_digits(f"{first}{zeros}", f"{last}{nines}"))
    return " | ".join(ways)


def _span(first: str, last: str) -> str:
    return f'"{first}"' if first == last else f"[{first}-{last}]"
