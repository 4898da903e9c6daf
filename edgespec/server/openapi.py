"""The published description of the server, made from the schemas that requests are checked against."""

from __future__ import annotations

import functools
from typing import Any

import edgespec
from edgespec.server.schema import CHAT, COMPLETION, RESPONSE, Schema

__all__ = ["document"]

_ERROR: Schema = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": "null"},
                "code": {"type": "string"},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
_USAGE: Schema = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    | {"prompt_tokens_details": {"type": "object", "properties": {"cached_tokens": {"type": "integer"}}}},
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
}
_ANSWER: Schema = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "object": {"type": "string"},
        "created": {"type": "integer"},
        "model": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": 1},
        "usage": _USAGE,
        "edgespec": {
            "type": "object",
            "description": "Statistics of the generation: drafted, accepted, bytes_paged, seconds, and the text in spans, "
            "each with whether it was drafted.",
        },
    },
    "required": ["id", "object", "created", "model", "choices", "usage", "edgespec"],
}


_RESPONSE_ANSWER: Schema = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "response"},
        "created_at": {"type": "integer"},
        "status": {"enum": ["completed", "incomplete"]},
        "output": {"type": "array", "items": {"type": "object"}, "minItems": 1},
        "usage": {"type": "object"},
        "edgespec": _ANSWER["properties"]["edgespec"],
    },
    "required": ["id", "object", "created_at", "model", "status", "output", "usage", "edgespec"],
}


def _json(schema: Schema, description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _refusals(*statuses: int) -> dict[str, Any]:
    reasons = {400: "bad request", 401: "no key", 403: "wrong origin", 404: "not there", 413: "too large",
               421: "wrong host", 500: "failed", 503: "too many wait; Retry-After says when to come again"}  # fmt: skip
    return {str(status): _json(_ERROR, reasons[status]) for status in statuses}


def _post(summary: str, schema: Schema, answer: Schema = _ANSWER) -> dict[str, Any]:
    done = _json(answer, "the answer")
    event = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
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
    text: Schema = {"type": "string"}
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
            "/metrics": _get("Counters for Prometheus", "text/plain", text),
        },
    }
