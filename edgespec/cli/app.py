"""The commands, and the one place where an exception becomes a line and an exit code."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Annotated

import typer

import edgespec
from edgespec.cli.batch import batch
from edgespec.cli.bench import bench
from edgespec.cli.chat import chat
from edgespec.cli.console import say
from edgespec.cli.datastore import datastore
from edgespec.cli.demo import demo
from edgespec.cli.doctor import doctor
from edgespec.cli.models import list_models, ps, pull, remove_model, show
from edgespec.cli.pages import pages
from edgespec.cli.plan import plan
from edgespec.cli.run import run
from edgespec.cli.serve import serve
from edgespec.engines.llamacpp import crash
from edgespec.errors import Cancelled, EdgespecError, UsageError

__all__ = ["main"]

app = typer.Typer(
    name="edgespec", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="Run a language model larger than the memory you give it.",
)  # fmt: skip
for command in (run, chat, serve, batch, plan, bench, demo, doctor):
    app.command()(command)
app.command("pull")(pull)
app.command("list")(list_models)
app.command("show")(show)
app.command("rm")(remove_model)
app.command("ps")(ps)
app.add_typer(pages, name="pages")
app.add_typer(datastore, name="datastore")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"edgespec {edgespec.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    level = os.environ.get("EDGESPEC_LOG", "").upper()
    if level in logging.getLevelNamesMapping():
        logging.basicConfig(level=level, stream=sys.stderr, format="%(name)s: %(message)s")


def main() -> None:
    """Entry point: 0 done, 2 usage, 3 model, 4 budget, 5 fault while running, 6 engine absent, 7 hub, 130 interrupted."""
    crash.watch()
    code = _main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the answer is given: one more Ctrl-C cannot change it
    sys.exit(code)


def _main() -> int:
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except typer.TyperException as error:
        say(f"edgespec: {error.format_message().rstrip('.')}: see `edgespec --help`")
        return UsageError.exit_code
    except EdgespecError as error:
        say(f"edgespec: {error}")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return Cancelled.exit_code
