"""`openai-decision`: OpenAI's Decisions API, and servers that imitate it.

`POST {base_url}/v1/decisions`: at most 400 questions a request, of 2 to 255 options and 2 to 10 levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.clients.hints import openai_limits

from .. import openai_wire
from ..abstract import DecisionAnswer
from ..http import HttpDecisionClient
from ..request import DecisionRequest
from ..response import Answer
from ..wire import decode_answers, decode_model


class OpenAIDecisionClient(HttpDecisionClient):
    """Lists in place of objects; limits in the headers."""

    path: ClassVar[str] = "/v1/decisions"
    request_id_header: ClassVar[str | None] = "x-request-id"
    default_base_url: ClassVar[str | None] = "https://api.openai.com"
    default_credential: ClassVar[str | None] = "openai-api-key"
    MOST_QUESTIONS: ClassVar[int | None] = 400

    def encode(self, request: DecisionRequest) -> dict[str, Any]:
        return openai_wire.encode(request, model=self.entry.wire_model_id)

    def read(self, body: dict[str, Any]) -> DecisionAnswer:
        return DecisionAnswer(body=body, usage=openai_wire.decode_usage(body), served_model=decode_model(body))

    def decode(self, body: Any, request: DecisionRequest) -> dict[str, Answer]:
        answers = openai_wire.decode(body, request.questions, model=self.entry.id)
        return decode_answers(answers, request.questions)

    def read_limits(self, headers: Mapping[str, str]) -> Mapping[Dimension, ReportedLimit]:
        return openai_limits(headers, now=self.environment.wall())
