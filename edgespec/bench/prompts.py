"""Prompts for the embedded pair: stories the drafter knows well, questions, and documentation it half knows."""

from __future__ import annotations

from edgespec.text.prompt import Prompt

__all__ = ["PROMPTS"]

PROMPTS: tuple[Prompt, ...] = (
    [{"role": "user", "content": "Tell me a short story about Anna."}],
    "class socketserver.BaseServer\n\nBase class for server classes.\n\nMethods for the caller:\n\n"
    "- __init__(server_address, RequestHandlerClass)\n- serve_forever(poll_interval=0.5)\n- shutdown()\n",
    "The module provides a simple way to read and write files. The most important function is open(), which",
)
