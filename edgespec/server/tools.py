"""Tool calls: models write them as JSON in a manner of their own, the API has them as objects."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

__all__ = ["tool_calls_in"]

_TAGGED = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)  # Hermes, Qwen
_BARE = re.compile(r"^\s*(?:<\|python_tag\|>)?\s*(\{.*\})\s*$", re.DOTALL)  # Llama 3


def tool_calls_in(text: str, names: set[str]) -> tuple[str, list[dict[str, Any]]]:
    """What is said beside the calls of functions `names`, and the calls; all of the text where there is none."""
    tagged = [(match, _call(match[1], names)) for match in _TAGGED.finditer(text)]
    if tagged and all(call for _, call in tagged):
        return _TAGGED.sub("", text).strip(), [call for _, call in tagged if call]
    bare = _BARE.match(text)
    call = _call(bare[1], names) if bare else None
    return ("", [call]) if call else (text, [])


def _call(text: str, names: set[str]) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    if found.get("name") not in names or not isinstance(arguments, dict):
        return None
    function = {"name": found["name"], "arguments": json.dumps(arguments)}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}
