"""What requests may say: one JSON schema each, which requests are checked against and which is published.

Fields that the OpenAI API has and this server does not are refused unless they ask for nothing.
"""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from edgespec.server.errors import Refused
from edgespec.types import MOST_TOP_LOGPROBS

__all__ = ["CHAT", "COMPLETION", "RESPONSE", "checked", "parsed"]

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_NULL: Schema = {"type": "null"}


def _object(properties: Schema, *required: str) -> Schema:
    """With these fields and no other."""
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return made | ({"required": list(required)} if required else {})


def _maybe(schema: Schema) -> Schema:
    """Clients send null for what they leave out."""
    return {"anyOf": [schema, _NULL]}


_STOP = _maybe({"anyOf": [{"type": "string", "minLength": 1}, {
    "type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 16,
}]})  # fmt: skip
_EXTENSION: Schema = _object({
    "speculation": {"type": "boolean", "description": "Whether tokens may be guessed. The text is the same."},
    "grammar": {"type": "string", "description": "GBNF; nothing it does not allow is said."},
}) | {"description": "What only edgespec knows."}  # fmt: skip
_SAMPLING: Schema = {
    "model": _maybe(_TEXT),
    "temperature": _maybe({"type": "number", "minimum": 0, "maximum": 100}),
    "top_p": _maybe({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
    "top_k": _maybe({"type": "integer", "minimum": 0, "maximum": 2**31 - 1}),
    "min_p": _maybe({"type": "number", "minimum": 0, "maximum": 1}),
    "repeat_penalty": _maybe({"type": "number", "minimum": 0.01, "maximum": 100}),
    "seed": _maybe({"type": "integer", "minimum": 0, "maximum": 2**32 - 2}),
    "max_tokens": _maybe({"type": "integer", "minimum": 1, "maximum": 2**31 - 1}),
    "stop": _STOP,
    "stream": _maybe({"type": "boolean"}),
    "stream_options": _maybe(_object({"include_usage": {"type": "boolean"}})),
    "n": _maybe({"const": 1}),
    "frequency_penalty": _maybe({"type": "number", "minimum": -2, "maximum": 2}),
    "presence_penalty": _maybe({"type": "number", "minimum": -2, "maximum": 2}),
    "logit_bias": _maybe({"type": "object", "maxProperties": 0}),
    "user": _maybe(_TEXT),
    "edgespec": _maybe(_EXTENSION),
}  # fmt: skip
_PART: Schema = _object({"type": {"const": "text"}, "text": _TEXT}, "type", "text")
_CALL: Schema = _object(
    {
        "id": _TEXT,
        "type": {"const": "function"},
        "function": _object({"name": _TEXT, "arguments": _TEXT}, "name", "arguments"),
    },
    "id", "type", "function",
)  # fmt: skip
_MESSAGE: Schema = _object(
    {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": _maybe({"anyOf": [_TEXT, {"type": "array", "items": _PART, "minItems": 1}]}),
        "name": _maybe(_TEXT),
        "tool_calls": _maybe({"type": "array", "items": _CALL}),
        "tool_call_id": _maybe(_TEXT),
        "refusal": _NULL,
    },
    "role",
)
_TOOL: Schema = _object(
    {
        "type": {"const": "function"},
        "function": _object(
            {
                "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
                "description": _TEXT,
                "parameters": {"type": "object"},
                "strict": _maybe({"type": "boolean"}),
            },
            "name",
        ),
    },
    "type", "function",
)  # fmt: skip
_NAMED_TOOL: Schema = _object(
    {"type": {"const": "function"}, "function": _object({"name": _TEXT}, "name")}, "type", "function"
)  # fmt: skip
_JSON_SCHEMA: Schema = _object(
    {"name": _TEXT, "description": _TEXT, "schema": {"type": "object"}, "strict": _maybe({"type": "boolean"})},
    "name", "schema",
)  # fmt: skip
_FORMAT: Schema = {
    "anyOf": [
        _object({"type": {"enum": ["text", "json_object"]}}, "type"),
        _object({"type": {"const": "json_schema"}, "json_schema": _JSON_SCHEMA}, "type", "json_schema"),
    ]
}

CHAT: Schema = _object(_SAMPLING | {
        "messages": {"type": "array", "items": _MESSAGE, "minItems": 1},
        "max_completion_tokens": _SAMPLING["max_tokens"],
        "logprobs": _maybe({"type": "boolean"}),
        "top_logprobs": _maybe({"type": "integer", "minimum": 0, "maximum": MOST_TOP_LOGPROBS}),
        "response_format": _maybe(_FORMAT),
        "tools": _maybe({"type": "array", "items": _TOOL, "maxItems": 128}),
        "tool_choice": _maybe({"anyOf": [{"enum": ["auto", "none", "required"]}, _NAMED_TOOL]}),
        "parallel_tool_calls": _maybe({"type": "boolean"}),
    }, "messages")  # fmt: skip
COMPLETION: Schema = _object(_SAMPLING | {
        "prompt": {"anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}, "minItems": 1},
        ]},
        "echo": _maybe({"const": False}),
        "best_of": _maybe({"const": 1}),
        "suffix": _maybe({"const": ""}),
        "logprobs": _maybe({"type": "integer", "minimum": 0, "maximum": MOST_TOP_LOGPROBS}),
    }, "prompt")  # fmt: skip


_SHARED = ("model", "temperature", "top_p", "top_k", "min_p", "repeat_penalty", "seed", "stop", "stream", "user", "edgespec")
_INPUT: Schema = {"anyOf": [
    _object({
        "type": {"const": "message"}, "id": _maybe(_TEXT), "status": _maybe(_TEXT), "phase": _maybe(_TEXT),
        "role": {"enum": ["system", "developer", "user", "assistant"]},
        "content": {"anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _object({
            "type": {"enum": ["input_text", "output_text"]}, "text": _TEXT, "annotations": _maybe({"type": "array"}),
            "logprobs": _maybe({"type": "array"}),
        }, "type", "text")}]},
    }, "role", "content"),
    _object({
        "type": {"const": "function_call"}, "id": _maybe(_TEXT), "status": _maybe(_TEXT), "call_id": _TEXT, "name": _TEXT,
        "arguments": _TEXT,
    }, "type", "call_id", "name", "arguments"),
    _object({
        "type": {"const": "function_call_output"}, "id": _maybe(_TEXT), "status": _maybe(_TEXT), "call_id": _TEXT,
        "output": _TEXT,
    }, "type", "call_id", "output"),
]}  # fmt: skip
_RESPONSE_TOOL: Schema = _object({"type": {"const": "function"}} | _TOOL["properties"]["function"]["properties"], "type", "name")
_RESPONSE_FORMAT: Schema = {
    "anyOf": [
        _object({"type": {"enum": ["text", "json_object"]}}, "type"),
        _object({"type": {"const": "json_schema"}} | _JSON_SCHEMA["properties"], "type", "name", "schema"),
    ]
}
RESPONSE: Schema = _object({name: _SAMPLING[name] for name in _SHARED} | {
        "input": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": _INPUT, "minItems": 1}]},
        "instructions": _maybe(_TEXT),
        "max_output_tokens": _SAMPLING["max_tokens"],
        "text": _maybe(_object({"format": _maybe(_RESPONSE_FORMAT), "verbosity": _maybe(_TEXT)})),
        "tools": _maybe({"type": "array", "items": _RESPONSE_TOOL, "maxItems": 128}),
        "tool_choice": _maybe({"anyOf": [
            {"enum": ["auto", "none", "required"]}, _object({"type": {"const": "function"}, "name": _TEXT}, "type", "name"),
        ]}),
        "parallel_tool_calls": _maybe({"type": "boolean"}),
        "metadata": _maybe({"type": "object", "additionalProperties": _TEXT}),
        "include": _maybe({"type": "array", "maxItems": 0}),
        "store": _maybe({"type": "boolean"}),  # nothing is, whatever it says
        "background": _maybe({"const": False}),
        "truncation": _maybe({"const": "disabled"}),
        "previous_response_id": _NULL,
    }, "input")  # fmt: skip


def parsed(body: bytes) -> Any:
    """JSON as the standard has it. Raises Refused."""

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}", "invalid_json") from None


def checked(found: Any, schema: Schema) -> dict[str, Any]:
    """The request without what it left out or sent as null. Raises Refused naming the field."""
    error = best_match(Draft202012Validator(schema).iter_errors(found))
    if error is not None:
        where = ".".join(str(part) for part in error.absolute_path) or "the request"
        raise Refused(400, f"{where}: {error.message[:300]}", "invalid_value")
    return {name: value for name, value in found.items() if value is not None}
