"""The API reference, from the docstrings: ``python scripts/api_reference.py > docs/api.md``."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

import edgespec
from edgespec import errors, types
from edgespec.batch import Batch
from edgespec.saved import Conversation, Shelf

CLASSES = (
    edgespec.Runtime,
    types.Chunk,
    types.Completion,
    types.Expected,
    types.TokenLogprob,
    types.Statistics,
    types.SamplingParams,
    Shelf,
    Conversation,
    Batch,
)


def signature(function: Any) -> str:
    """One parameter a line where they do not fit one; defaults that have no notation as dots."""
    text = re.sub(r"<.*? at 0x[0-9a-f]+>", "...", str(inspect.signature(function)).replace("'", ""))
    if len(text) < 100:
        return text
    inside, _, result = text[1:].rpartition(")")
    return "(\n    " + ",\n    ".join(re.split(r", (?![^\[]*\])", inside)) + ",\n)" + result


def entry(name: str, function: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{name}`\n"
    yield f"```text\n{name}{signature(function)}\n```\n"
    yield f"{inspect.getdoc(function) or ''}\n"


def of_class(kind: type) -> Iterator[str]:
    yield f"## `{kind.__module__}.{kind.__name__}`\n"
    doc = inspect.getdoc(kind) or ""
    yield f"{doc}\n"
    if dataclasses.is_dataclass(kind) and not any(
        callable(value) and not name.startswith("_") for name, value in vars(kind).items()
    ):
        yield "\n".join(f"- `{field.name}: {field.type}`" for field in dataclasses.fields(kind)) + "\n"
    for name, value in vars(kind).items():
        if name.startswith("_") or isinstance(value, staticmethod):
            continue
        if isinstance(value, property) and value.fget and value.fget.__doc__:
            yield f"### `{name}`\n\n{inspect.getdoc(value.fget)}\n"
        elif inspect.isfunction(value):
            yield from entry(name, value, 3)


def reference() -> str:
    lines = ["# API\n\nMade from the docstrings by `python scripts/api_reference.py`.\n"]
    lines += entry("edgespec.load", edgespec.load, 2)
    for kind in CLASSES:
        lines += of_class(kind)
    lines.append(f"## Errors\n\n```text\n{inspect.getdoc(errors)}\n```")
    return "\n".join(lines)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(reference())


if __name__ == "__main__":
    main()
