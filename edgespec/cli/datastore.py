"""`edgespec datastore`: the user's own files as a source of guesses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from edgespec.cli import options as opt
from edgespec.cli.console import progress, say
from edgespec.cli.models import located
from edgespec.engines.llamacpp.tokenizer import opened_tokenizer
from edgespec.errors import UsageError
from edgespec.modelfile.header import read_model
from edgespec.shipped import embedded_model
from edgespec.speculation.drafting.datastore import write_datastore

__all__ = ["datastore"]

datastore = typer.Typer(no_args_is_help=True, add_completion=False, help="Texts of your own to guess from: build a store.")
_LARGEST = 4 << 20  # bytes of one file; larger ones are rarely text somebody wrote


@datastore.callback()
def _group() -> None:
    """A group, also while it has one command."""


@datastore.command("build")
def build(
    paths: Annotated[list[Path], typer.Argument(help="Text files, or folders of them.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to make; one that is there is replaced.")],
    target: opt.Target = None,
) -> None:
    """Tokenize files with the target's vocabulary and sort all places in them; give the folder to `run --datastore`."""
    header = read_model(located(target, None)[0] or embedded_model("target"))
    files = [file for path in paths for file in _files(path)]
    with progress() as status, opened_tokenizer(header.path) as tokenizer:
        status(f"reading {len(files)} files")
        texts = (tokenizer.encode(text) for file in files if (text := _text(file)))
        tokens = write_datastore(texts, header.vocabulary, out)
    say(f"{out}: {tokens} tokens of {len(files)} files")


def _files(path: Path) -> Iterator[Path]:
    """Hidden ones left out, in an order of their names."""
    if path.is_file():
        yield path
    elif path.is_dir():
        inside = (file for file in path.rglob("*") if file.is_file())
        yield from sorted(f for f in inside if not any(part.startswith(".") for part in f.relative_to(path).parts))
    else:
        raise UsageError(f"{path} is no file or folder: check the path")


def _text(file: Path) -> str | None:
    """None, said so, for what is not text or is too large."""
    try:
        if file.stat().st_size <= _LARGEST:
            return file.read_text("utf-8")
        reason = "too large"
    except UnicodeDecodeError:
        reason = "not text"
    except OSError as error:
        reason = str(error.strerror)
    say(f"left out {file}: {reason}")
    return None
