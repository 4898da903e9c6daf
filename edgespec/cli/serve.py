"""`edgespec serve`: the API and a page, for programs and people on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from edgespec.cli import options as opt
from edgespec.cli.console import say
from edgespec.cli.opening import opened
from edgespec.extras import extra
from edgespec.strategy import DRAFT_CELLS

__all__ = ["serve"]

Host = Annotated[str, opt.option("host", "Where to listen; beyond this machine only with a key.")]
Port = Annotated[int, opt.option("port", "0 takes any that is free.", min=0, max=65535)]
Key = Annotated[str | None, opt.option("api-key", "What clients must send to be answered.")]
Hosts = Annotated[list[str] | None, opt.option("allow-host", "Another name this server is known by.")]
Origins = Annotated[list[str] | None, opt.option("allow-origin", "A site whose pages may ask: https://example.org")]
Waiting = Annotated[int, opt.option("max-waiting", "Requests that may wait; others are told to come again.", min=0)]

Conversations = Annotated[
    int, opt.option("conversations", "Of how many what was read is kept: one in memory, others on disk.", min=1)
]


def serve(
    target: opt.Target = None,
    drafter: opt.Drafter = None,
    budget: opt.Budget = None,
    context: opt.Context = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    api_key: Key = None,
    allow_host: Hosts = None,
    allow_origin: Origins = None,
    max_waiting: Waiting = 64,
    conversations: Conversations = 8,
    speculation: opt.Mode = "auto",
    stages: opt.Stages = None,
    datastore: opt.Datastore = None,
    verify: opt.Verify = "match",
    lossy: opt.Lossy = None,
    draft_view: opt.DraftView = "full",
    draft_cells: opt.DraftCells = DRAFT_CELLS,
    kv_type: opt.KvType = "f16",
    pages: opt.Pages = "auto",
    threads: opt.Threads = None,
    strict: opt.Strict = False,
) -> None:
    """Answer over HTTP as the OpenAI API does, with a page at `/`. Ctrl-C ends it."""
    with extra("server"):
        from edgespec.server.guard import Rules
        from edgespec.server.run import listen, serve_forever
        from edgespec.server.service import Service
    rules = Rules(host, api_key, tuple(allow_host or ()), tuple(allow_origin or ()))
    listener = listen(host, port)  # refused before anything is loaded
    opening = opened(**opt.for_loading(locals()))
    with listener, opening as runtime:
        service = Service(runtime, _name(target), max_waiting)
        serve_forever(service, rules, listener, ready=lambda address: say(f"listening on {address} (Ctrl-C ends)"))


def _name(target: str | None) -> str:
    """What clients call it: the name it was asked for by, or its file's."""
    return Path(target).stem if target and Path(target).exists() else target or "edgespec"
