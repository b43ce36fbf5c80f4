"""`openrouter-decision`: decision models on OpenRouter. System One's questions and answers under another path, with
OpenRouter's own errors.

`POST {base_url}/alpha/decisions`. An alpha of OpenRouter's: it may change.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..abstract import DecisionAnswer
from ..http import HttpDecisionClient
from ..questions import Noul, Question
from ..request import DecisionRequest
from ..wire import decode_model, decode_usage, encode_question


class OpenRouterDecisionClient(HttpDecisionClient):
    """The wire wants both sides of a noul described, or neither."""

    path: ClassVar[str] = "/alpha/decisions"
    default_base_url: ClassVar[str | None] = "https://openrouter.ai/api"
    default_credential: ClassVar[str | None] = "openrouter-api-key"

    def encode(self, request: DecisionRequest) -> dict[str, Any]:
        questions = {name: _written(question) for name, question in request.questions.items()}
        return {"model": self.entry.wire_model_id, "state": request.state, "questions": questions}

    def read(self, body: dict[str, Any]) -> DecisionAnswer:
        request_id = body.get("id")
        return DecisionAnswer(
            body=body,
            usage=decode_usage(body),
            served_model=decode_model(body),
            request_id=request_id if isinstance(request_id, str) else None,
        )


def _written(question: Question) -> dict[str, Any]:
    written = encode_question(question)
    if isinstance(question, Noul) and len(written.get("criteria", {})) == 1:
        written["criteria"] = {"true": question.yes or "anything else", "false": question.no or "anything else"}
    return written
