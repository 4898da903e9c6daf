"""Prompts for the embedded pair: a story its drafter knows well, and documentation it half knows."""

from __future__ import annotations

from edgespec.text.prompt import Prompt

__all__ = ["PROMPTS"]

PROMPTS: tuple[Prompt, ...] = (
    [{"role": "user", "content": "Tell me a short story about Anna."}],
    "class socketserver.BaseServer\n\nBase class for server classes.\n\nMethods for the caller:\n\n"
    "- __init__(server_address, RequestHandlerClass)\n- serve_forever(poll_interval=0.5)\n- shutdown()\n",
    "weather.forecast(day)\n\nReturn a list of (hour, temperature) tuples for the given day.",
)
