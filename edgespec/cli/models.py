"""`edgespec pull`, `list`, `show`, `rm` and `ps`: models by name, and who runs them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

from edgespec.cli import options as opt
from edgespec.cli.console import bar, on_terminal, progress, say, write
from edgespec.cli.report import expectation
from edgespec.extras import extra
from edgespec.hub.found import Pulled, find
from edgespec.hub.names import catalog, is_name
from edgespec.hub.store import remove, stored
from edgespec.loading import Options
from edgespec.memory.budget import format_size
from edgespec.modelfile.header import read_model
from edgespec.running import running

if TYPE_CHECKING:
    from edgespec.hub.pull import Offer

__all__ = ["list_models", "located", "ps", "pull", "remove_model", "show"]

Name = Annotated[str, typer.Argument(help="A name of the catalog (qwen2.5:7b), or user/repo[:quant].")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before downloading.")]
Offline = Annotated[bool, typer.Option("--offline", envvar="HF_HUB_OFFLINE", help="Say where it is, if it is here.")]
All = Annotated[bool, typer.Option("--all", help="The whole catalog, with what is not here.")]


def hub_folder() -> Path:
    """huggingface_hub's cache, by its own rules, without importing it."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def pull(
    name: Name, budget: opt.Budget = None, context: opt.Context = None, yes: Yes = False, offline: Offline = False
) -> None:  # fmt: skip
    """Download a model and its drafter, once it is known that they can run here."""
    if offline:
        _say_paths(find(hub_folder(), name))
        return
    with extra("hub"):
        from edgespec.hub.client import Hub
        from edgespec.hub.pull import fetch, look
    hub = Hub(hub_folder(), token=os.environ.get("HF_TOKEN"))
    with progress() as status:
        offer = look(hub, name, Options(budget=budget, context=context), status)
    for line in (_offered(name, offer), *offer.notes):
        say(line)
    if offer.missing_bytes and not yes and on_terminal():
        typer.confirm("Download?", abort=True, err=True)
    with bar(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as shown:
        tasks = {file.name: shown.add_task(Path(file.name).name, total=file.size) for file in (*offer.target, *offer.drafter)}
        pulled = fetch(hub, offer, lambda file, done: shown.update(tasks[file.name], completed=done))
    _say_paths(pulled)


def _offered(name: str, offer: Offer) -> str:
    return (
        f"{name}: {format_size(offer.size)} in {len(offer.target) + len(offer.drafter)} files, "
        f"{format_size(offer.missing_bytes)} of it to download; within {format_size(offer.plan.budget)} "
        f"{expectation(offer.expected_tokens_per_second)}"
    )


def _say_paths(pulled: Pulled) -> None:
    for path in filter(None, (pulled.target, pulled.drafter)):
        write(f"{path}\n")


def located(target: str | None, drafter: str | None) -> tuple[str | None, str | None]:
    """Paths of what was named; a name of the catalog brings its drafter along. Raises ModelNotFound naming the pull."""
    found = find(hub_folder(), target) if target and is_name(target) else None
    if drafter and is_name(drafter):
        drafter = str(find(hub_folder(), drafter).target)
    if found is None:
        return target, drafter
    return str(found.target), drafter or (str(found.drafter) if found.drafter else None)


def list_models(every: All = False, as_object: opt.Json = False) -> None:
    """Models on this machine."""
    here = stored(hub_folder())
    rows: list[dict[str, Any]] = [{"name": model.name, "bytes": model.size, "path": str(model.paths[0])} for model in here]
    if every:
        names = {model.name for model in here}
        rows += [{"name": name, "bytes": None, "path": None} for name in sorted(catalog()) if name not in names]
    if as_object:
        write(json.dumps(rows) + "\n")
        return
    for row in rows:
        size = format_size(row["bytes"]) if row["bytes"] is not None else "not here"
        write(f"{row['name']:<40}{size:>12}\n")
    if not rows:
        say("no models yet: edgespec pull qwen2.5:7b, or `edgespec list --all` for the catalog")


def show(name: Name, as_object: opt.Json = False) -> None:
    """What a model is, from its header and the catalog."""
    target, drafter = located(name, None)
    header = read_model(target or name)
    entry = catalog().get(name)
    facts = {
        "name": header.name, "architecture": header.architecture, "layers": header.layers, "width": header.width,
        "trained_context": header.trained_context, "weight_bytes": header.weight_bytes,
        "vocabulary": len(header.vocabulary.tokens), "licence": entry.licence if entry else None,
        "base": entry.base if entry else None, "path": header.path,
        "drafter": drafter,
    }  # fmt: skip
    if as_object:
        write(json.dumps(facts) + "\n")
        return
    for fact, value in facts.items():
        write(f"{fact.replace('_', ' '):<20}{format_size(value) if fact == 'weight_bytes' else value}\n")  # type: ignore[arg-type]


def remove_model(name: Name) -> None:
    """Delete a model's files; its drafter stays."""
    say(f"{format_size(remove(hub_folder(), name))} freed")


def ps(as_object: opt.Json = False) -> None:
    """What runs on this machine, and the memory it may use."""
    rows = [asdict(one) for one in running()]
    if as_object:
        write(json.dumps(rows) + "\n")
        return
    for row in rows:
        write(
            f"{row['pid']:<9}{row['model']:<36}{format_size(row['resident_bytes']):>12} of {format_size(row['budget_bytes'])}\n"
        )
    if not rows:
        say("nothing runs")
