"""The published description of the server, made from the schemas that requests are checked against."""

from __future__ import annotations

import functools
from typing import Any

import edgespec
from edgespec.server.schema import CHAT, COMPLETION, RESPONSE, Schema

__all__ = ["document"]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer"}


def _with(properties: Schema, **others: Schema) -> Schema:
    """An object that has all of these, and may have `others`."""
    return {"type": "object", "properties": properties | others, "required": list(properties)}


_ERROR = _with({"error": _with({"message": _TEXT, "type": _TEXT, "param": {"type": "null"}, "code": _TEXT})})
_USAGE = _with(
    {"prompt_tokens": _COUNT, "completion_tokens": _COUNT, "total_tokens": _COUNT},
    prompt_tokens_details={"type": "object", "properties": {"cached_tokens": _COUNT}},
)
_EXTENSION: Schema = {
    "type": "object",
    "description": "Statistics of the generation: drafted, accepted, bytes_paged, seconds, and the text in spans, "
    "each with whether it was drafted.",
}
_ANSWER = _with({
    "id": _TEXT,
    "object": _TEXT,
    "created": _COUNT,
    "model": _TEXT,
    "choices": {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": 1},
    "usage": _USAGE,
    "edgespec": _EXTENSION,
})  # fmt: skip
_RESPONSE_ANSWER = _with({
    "id": _TEXT,
    "object": {"const": "response"},
    "created_at": _COUNT,
    "model": _TEXT,
    "status": {"enum": ["completed", "incomplete"]},
    "output": {"type": "array", "items": {"type": "object"}, "minItems": 1},
    "usage": {"type": "object"},
    "edgespec": _EXTENSION,
})  # fmt: skip


def _json(schema: Schema, description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _refusals(*statuses: int) -> dict[str, Any]:
    reasons = {400: "bad request", 401: "no key", 403: "wrong origin", 404: "not there", 413: "too large",
               421: "wrong host", 500: "failed", 503: "too many wait; Retry-After says when to come again"}  # fmt: skip
    return {str(status): _json(_ERROR, reasons[status]) for status in statuses}


def _post(summary: str, schema: Schema, answer: Schema = _ANSWER) -> dict[str, Any]:
    done = _json(answer, "the answer")
    event = _with({"data": _TEXT})
    done["content"]["text/event-stream"] = {"schema": event}
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": {"200": done} | _refusals(400, 401, 403, 413, 421, 500, 503),
        }
    }


def _get(summary: str, media: str = "application/json", schema: Schema | None = None) -> dict[str, Any]:
    content = {media: {"schema": schema or {"type": "object"}}}
    return {
        "get": {"summary": summary, "responses": {"200": {"description": "done", "content": content}} | _refusals(401, 403, 421)}
    }


@functools.cache
def document() -> dict[str, Any]:
    """OpenAPI 3.1"""
    return {
        "openapi": "3.1.0",
        "info": {"title": "edgespec", "version": edgespec.__version__},
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "paths": {
            "/v1/chat/completions": _post("The assistant's next message", CHAT),
            "/v1/completions": _post("The continuation of a text", COMPLETION),
            "/v1/responses": _post("The assistant's next message, as the Responses API has it", RESPONSE, _RESPONSE_ANSWER),
            "/v1/models": _get("The model that answers"),
            "/v1/edgespec": _get("Memory, queue and the statistics of the last generation"),
            "/health": _get("Whether the server is up"),
            "/metrics": _get("Counters for Prometheus", "text/plain", _TEXT),
        },
    }
