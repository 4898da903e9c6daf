"""`edgespec pages`: the page files on disk, and getting rid of them."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from edgespec.cli import options as opt
from edgespec.cli.console import say, write
from edgespec.errors import UsageError
from edgespec.memory.budget import format_size
from edgespec.memory.pagefile import intact, stored
from edgespec.repacking import pages_folder

__all__ = ["pages"]

pages = typer.Typer(no_args_is_help=True, add_completion=False, help="Repacked copies of weights on disk: list and remove them.")


@pages.command("list")
def list_pages(
    check: Annotated[bool, typer.Option("--check", help="Read every file and compare checksums.")] = False,
    as_object: opt.Json = False,
) -> None:
    """Show page files and what they take."""
    rows = [
        {"name": path.name, "bytes": path.stat().st_size, **({"intact": intact(path)} if check else {})}
        for path in stored(pages_folder())
    ]
    if as_object:
        write(json.dumps(rows) + "\n")
        return
    for row in rows:
        state = "" if not check else "  intact" if row["intact"] else "  damaged"
        write(f"{row['name']:<60}{format_size(int(str(row['bytes']))):>12}{state}\n")
    say(f"{len(rows)} page files in {pages_folder()}")


@pages.command("rm")
def remove_pages(
    names: Annotated[list[str] | None, typer.Argument(help="Names as `list` shows them.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove every page file.")] = False,
) -> None:
    """Remove page files; they are made again when they are needed."""
    known = {path.name: path for path in stored(pages_folder())}
    wanted = list(known) if everything else names or []
    if not wanted and not everything:
        raise UsageError("nothing to remove: name page files, or give --all")
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no page file {name!r}: see `edgespec pages list`")
    freed = sum(known[name].stat().st_size for name in wanted)
    for name in wanted:
        known[name].unlink()
    say(f"{len(wanted)} page files removed, {format_size(freed)} free again")
