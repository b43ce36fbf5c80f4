"""`systemone-decision`: the System One wire, hosted by TypeSafe or by any server that speaks it.

`POST {base_url}/v1/systemone` with a bearer key; a provider without a `credential` (a server of one's own) sends none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from interlock.clients.failures import Refusal

from ..abstract import DecisionAnswer
from ..http import HttpDecisionClient
from ..request import DecisionRequest
from ..wire import decode_model, decode_usage, encode


class SystemOneDecisionClient(HttpDecisionClient):
    """TypeSafe's own wire, which is the form that all answers are read from here."""

    path: ClassVar[str] = "/v1/systemone"
    request_id_header: ClassVar[str | None] = "x-typesafe-request-id"
    default_base_url: ClassVar[str | None] = "https://api.typesafe.ai"

    def encode(self, request: DecisionRequest) -> dict[str, Any]:
        return encode(request, model=self.entry.wire_model_id)

    def read(self, body: dict[str, Any]) -> DecisionAnswer:
        return DecisionAnswer(body=body, usage=decode_usage(body), served_model=decode_model(body))

    def refusal(self, status: int | None, body: Any, headers: Mapping[str, str]) -> Refusal:
        if not isinstance(body, dict) or "detail" not in body:
            return super().refusal(status, body, headers)
        word, message = read_detail(body)
        return Refusal(status=status, words=frozenset({word} if word else ()), message=message)


def read_detail(body: Any) -> tuple[str | None, str]:
    """(the kind of error, what is said of it) from `{"detail": {...} | "..." | [...]}`. Pure.

    A list is validation errors, which can echo the input: of those only where and what kind is kept.
    """
    if not isinstance(body, dict):
        return None, ""
    detail = body.get("detail")
    if isinstance(detail, str):
        return None, detail
    if isinstance(detail, list):
        return "validation_error", "; ".join(_complaint(item) for item in detail[:5] if isinstance(item, dict))
    if isinstance(detail, dict):
        word, said = detail.get("error_type", detail.get("type")), detail.get("message")
        return (word.lower() if isinstance(word, str) else None), (said if isinstance(said, str) else "")
    return None, ""


def _complaint(item: dict[str, Any]) -> str:
    place = item.get("loc")
    named = [part for part in place if isinstance(part, (str, int))] if isinstance(place, list) else []
    inside = named.index("state") + 1 if "state" in named else len(named)
    # What stands inside the state has names of the caller's: of those only the numbers are told.
    parts = [str(part) for at, part in enumerate(named) if at < inside or isinstance(part, int)]
    kind = item.get("type")
    return f"{'.'.join(parts) or 'somewhere'}: {kind if isinstance(kind, str) else 'invalid'}"
