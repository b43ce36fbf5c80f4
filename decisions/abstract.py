"""AbstractDecisionClient: the template. A provider subclass sends one request; everything else is here."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.entry import ModelEntry
from interlock.catalog.spec import ModelBinding
from interlock.catalog.tokens import estimate_text
from interlock.catalog.usage import Usage
from interlock.catalog.words import Kind
from interlock.clients.environment import ClientEnvironment
from interlock.clients.exchange import exchange
from interlock.clients.lifecycle import CallAttempt
from interlock.clients.record import CallRecord, CallSeat
from interlock.errors import ContextWindowExceededError

from .request import DecisionRequest
from .response import Answer, DecisionResponse
from .wire import decode_answers, encode_questions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionAnswer:
    """What a provider answered: `body` in the form of the System One wire, `{"answers": {...}}`.

    `read_characters` is set where the model read only so much of the state. `usage` None is unknown.
    """

    body: object
    usage: Usage | None = None
    request_id: str | None = None
    served_model: str | None = None
    reported: Mapping[Dimension, ReportedLimit] | None = None
    read_characters: int | None = None


class AbstractDecisionClient(ABC):
    """One entry of the catalog, callable. A subclass owns `send`: one wire request, its errors and its usage."""

    UPSTREAM_RETRIES: ClassVar[int] = 3
    #: Whether the model cuts a long state (and the answer says so) instead of refusing it.
    CUTS_STATE: ClassVar[bool] = False

    def __init__(self, entry: ModelEntry, environment: ClientEnvironment) -> None:
        self.entry, self.environment = entry, environment

    @abstractmethod
    async def send(self, request: DecisionRequest) -> DecisionAnswer:
        """Send one request, once, without any retry. Raises UpstreamError subclasses that never quote the state."""

    async def aclose(self) -> None:
        """Close what was opened. The client is not used afterwards."""
        return

    def bound(self, binding: ModelBinding, seat: CallSeat) -> BoundDecisionClient:
        return BoundDecisionClient(self, binding, seat)

    async def check(self, request: DecisionRequest) -> None:
        """Refuse what this model cannot take, before anything is sent. A subclass may add to it."""
        window, tokens = self.entry.context_window, self.estimate(request)
        if window is not None and tokens > window and not self.CUTS_STATE:
            raise ContextWindowExceededError(
                f"the state and its {len(request.questions)} questions have about {tokens:,} tokens; "
                f"{self.entry.id} reads {window:,}",
                model=self.entry.id,
                sent=False,
            )

    @property
    def timeout_s(self) -> float:
        return self.entry.timeout_s or self.environment.settings.timeout_s

    def estimate(self, request: DecisionRequest) -> int:
        """Tokens of a request, as the reservation counts them."""
        estimator = self.environment.estimator
        return estimate_text(request.text) if estimator is None else estimator.estimate(self.entry.id, request.text)


class BoundDecisionClient:
    """The template's DecisionClient for one job's reservation."""

    def __init__(self, client: AbstractDecisionClient, binding: ModelBinding, seat: CallSeat) -> None:
        self._client, self._binding, self._seat = client, binding, seat

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        client = self._client
        if not isinstance(request, DecisionRequest):
            raise TypeError(f"decide takes a DecisionRequest, not {type(request).__name__}")
        await client.check(request)
        tokens = client.estimate(request)
        attempt = CallAttempt(
            self._seat, client.entry, client.environment, Kind.DECISION, tokens, 0, _request_hash(client.entry, request)
        )
        read_characters: int | None = None

        async def read(answer: DecisionAnswer) -> dict[str, Answer]:
            nonlocal read_characters
            read_characters = answer.read_characters
            return decode_answers(answer.body, request.questions)

        answers, record = await exchange(
            attempt,
            partial(client.send, request),
            read,
            timeout_s=client.timeout_s,
            redactor=client.environment.redactor,
        )
        self._observe(tokens, record)
        return _response(client.entry, answers, record, read_characters)

    def get_upstream_retries(self) -> int:
        return self._client.UPSTREAM_RETRIES

    getUpstreamRetries = get_upstream_retries

    def _observe(self, tokens: int, record: CallRecord) -> None:
        estimator, reported = self._client.environment.estimator, record.usage.input_tokens
        if estimator is not None and reported is not None and not record.usage.estimated:
            estimator.observe(self._client.entry.id, tokens, reported)


def _response(
    entry: ModelEntry, answers: Mapping[str, Answer], record: CallRecord, read_characters: int | None
) -> DecisionResponse:
    return DecisionResponse(
        answers=answers,
        usage=record.usage,
        model=entry.id,
        provider=entry.provider,
        served_model=record.served_model,
        request_id=record.request_id,
        cost=record.cost,
        currency=record.currency,
        latency_s=record.latency_s,
        read_characters=read_characters,
    )


def _request_hash(entry: ModelEntry, request: DecisionRequest) -> str:
    asked = [entry.wire_model_id, request.state, encode_questions(request.questions)]
    return hashlib.sha256(json.dumps(asked, ensure_ascii=False).encode()).hexdigest()
