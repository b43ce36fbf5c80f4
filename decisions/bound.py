"""BoundDecisionClient: the template's DecisionClient for one job's reservation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from interlock.catalog.entry import ModelEntry
from interlock.catalog.spec import ModelBinding
from interlock.catalog.words import Kind
from interlock.clients.exchange import exchange
from interlock.clients.lifecycle import CallAttempt
from interlock.clients.record import CallRecord, CallSeat

from .batch import CONCURRENCY, DecisionBatch, requests_of
from .calibration import temperature_of
from .gathering import gathered
from .questions import Question
from .recorded import plain, recorded
from .request import DecisionRequest
from .response import Answer, DecisionResponse
from .splitting import DecisionPart
from .temperature import calibrated
from .wire import encode_questions

if TYPE_CHECKING:
    from .abstract import AbstractDecisionClient, DecisionAnswer


@dataclass(frozen=True, slots=True)
class _Answered:
    """One part, answered and recorded."""

    part: DecisionPart
    answers: Mapping[str, Answer]
    record: CallRecord
    read_characters: int | None


class BoundDecisionClient:
    """Sends within the reservation of one job. Every request is sent once, recorded and settled, however it ends."""

    def __init__(self, client: AbstractDecisionClient, binding: ModelBinding, seat: CallSeat) -> None:
        self._client, self._binding, self._seat = client, binding, seat

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        client = self._client
        if not isinstance(request, DecisionRequest):
            raise TypeError(f"decide takes a DecisionRequest, not {type(request).__name__}")
        parts = client.planned(request)
        for part in parts:
            client.require_room(part)
            await client.check(part.request)
        temperatures, begun_s = self._temperatures(request), client.environment.clock.now()
        if len(parts) == 1:
            answered = [await self._ask(temperatures, parts[0])]
        else:
            answered = await gathered(parts, partial(self._ask, temperatures), limit=client.at_once)
        answers = client.merge(request, [(each.part, each.answers) for each in answered])
        for name, temperature in temperatures.items():
            answers[name] = calibrated(answers[name], temperature)
        return _response(client.entry, answers, answered, client.environment.clock.now() - begun_s)

    async def decide_batch(
        self,
        states: Iterable[DecisionRequest | Any],
        questions: Mapping[str, Question] | None = None,
        *,
        concurrency: int = CONCURRENCY,
    ) -> DecisionBatch:
        """Requests, or states with the same questions, at most `concurrency` at a time (one where the pool counts
        calls). What fails is told by its index and stops no other."""

        async def one(request: DecisionRequest) -> DecisionResponse | Exception:
            try:
                return await self.decide(request)
            except Exception as error:
                return error

        limit = concurrency if self._client.at_once > 1 else 1
        return DecisionBatch(tuple(await gathered(list(requests_of(states, questions)), one, limit=limit)))

    def get_upstream_retries(self) -> int:
        return self._client.UPSTREAM_RETRIES

    decideBatch = decide_batch
    getUpstreamRetries = get_upstream_retries

    async def _ask(self, temperatures: Mapping[str, float], part: DecisionPart) -> _Answered:
        client, request = self._client, part.request
        read_characters: int | None = None
        async with client.connections:
            attempt = CallAttempt(
                self._seat,
                client.entry,
                client.environment,
                Kind.DECISION,
                part.input_tokens,
                part.output_tokens,
                _request_hash(client.entry, request),
            )

            async def read(answer: DecisionAnswer) -> dict[str, Answer]:
                nonlocal read_characters
                read_characters = answer.read_characters
                answers = client.decode(answer.body, request)
                attempt.learn(decision=recorded(answers, temperatures) if temperatures else None)
                if client.environment.keep_text:
                    told = {name: plain(each) for name, each in answers.items()}
                    attempt.learn(text=json.dumps(told, ensure_ascii=False))
                return answers

            answers, record = await exchange(
                attempt,
                partial(client.send, request),
                read,
                timeout_s=client.timeout_s,
                redactor=client.environment.redactor,
                transport=client,
            )
        self._observe(part, record)
        return _Answered(part, answers, record, read_characters)

    def _temperatures(self, request: DecisionRequest) -> dict[str, float]:
        known, entry = self._client.environment.calibration, self._client.entry
        found = ((name, temperature_of(known, entry, question)) for name, question in request.questions.items())
        return {name: temperature for name, temperature in found if temperature is not None} if known else {}

    def _observe(self, part: DecisionPart, record: CallRecord) -> None:
        estimator, reported = self._client.environment.estimator, record.usage.total_input_tokens
        if estimator is not None and reported is not None and not record.usage.estimated:
            estimator.observe(self._client.entry.id, part.input_tokens, reported)


def _response(
    entry: ModelEntry, answers: Mapping[str, Answer], answered: Sequence[_Answered], took_s: float
) -> DecisionResponse:
    first, records = answered[0].record, [each.record for each in answered]
    usage, cost = first.usage, first.cost
    for record in records[1:]:
        usage += record.usage
        cost = None if cost is None or record.cost is None else cost + record.cost
    read = [each.read_characters for each in answered if each.read_characters is not None]
    return DecisionResponse(
        answers=answers,
        usage=usage,
        model=entry.id,
        provider=entry.provider,
        served_model=first.served_model,
        request_id=first.request_id,
        cost=cost,
        currency=first.currency,
        latency_s=first.latency_s if len(records) == 1 else took_s,
        read_characters=min(read, default=None),
        requests=len(records),
        request_ids=tuple(record.request_id for record in records if record.request_id is not None),
    )


def _request_hash(entry: ModelEntry, request: DecisionRequest) -> str:
    asked = [entry.wire_model_id, request.state, encode_questions(request.questions)]
    return hashlib.sha256(json.dumps(asked, ensure_ascii=False).encode()).hexdigest()
