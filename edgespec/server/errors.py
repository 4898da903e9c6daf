"""What a request can be refused with, in the words of the OpenAI API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse

from edgespec.errors import Busy, ContextFull, EdgespecError, UsageError

__all__ = ["Refused", "answer", "refusal_of"]


@dataclass
class Refused(Exception):
    """`code` says it to programs, `message` to people."""

    status: int
    message: str
    code: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": None, "code": self.code}}


def refusal_of(error: EdgespecError) -> Refused:
    if isinstance(error, ContextFull):
        return Refused(400, str(error), "context_length_exceeded")
    if isinstance(error, UsageError):
        return Refused(400, str(error), "invalid_value")
    if isinstance(error, Busy):
        return Refused(503, str(error), "busy", {"retry-after": "1"})
    return Refused(500, str(error), type(error).__name__)


def answer(refused: Refused) -> JSONResponse:
    return JSONResponse(refused.body, refused.status, refused.headers)
