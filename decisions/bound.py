"""BoundDecisionClient: the template's DecisionClient for one job's reservation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from interlock.catalog.entry import ModelEntry
from interlock.catalog.spec import ModelBinding
from interlock.catalog.words import Kind
from interlock.clients.exchange import exchange
from interlock.clients.lifecycle import CallAttempt
from interlock.clients.record import CallRecord, CallSeat
from interlock.errors import UpstreamError

from .batch import CONCURRENCY, DecisionBatch, requests_of
from .calibration import temperature_of
from .gathering import gathered
from .kept import AnsweredPart, KeptParts, request_hash
from .questions import Question
from .recorded import plain, recorded
from .request import DecisionRequest
from .response import Answer, DecisionResponse
from .splitting import DecisionPart
from .temperature import calibrated

if TYPE_CHECKING:
    from .abstract import AbstractDecisionClient, DecisionAnswer


class BoundDecisionClient:
    """Sends within the reservation of one job. Every request is sent once, recorded and settled, however it ends."""

    def __init__(
        self, client: AbstractDecisionClient, binding: ModelBinding, seat: CallSeat, kept: KeptParts | None = None
    ) -> None:
        self._client, self._binding, self._seat = client, binding, seat
        self._kept = KeptParts() if kept is None else kept

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
            answered = await self._ask_all(temperatures, parts)
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

    async def _ask_all(self, temperatures: Mapping[str, float], parts: Sequence[DecisionPart]) -> list[AnsweredPart]:
        """The parts of one decision. Where one fails and the job may be run again, no further one is begun, those under
        way are waited for, and what was answered is kept for that run."""
        entry, failed = self._client.entry, list[Exception]()

        async def one(part: DecisionPart) -> AnsweredPart | None:
            if failed:
                return None
            if (known := self._kept.take(entry, part)) is not None:
                return known
            try:
                return await self._ask(temperatures, part)
            except UpstreamError as error:
                if not error.retryable:
                    raise
                failed.append(error)
                return None

        outcomes = await gathered(parts, one, limit=self._client.at_once)
        answered = [each for each in outcomes if each is not None]
        if failed:
            self._kept.keep(entry, answered)
            raise failed[0]
        return answered

    async def _ask(self, temperatures: Mapping[str, float], part: DecisionPart) -> AnsweredPart:
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
                request_hash(client.entry, request),
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
        return AnsweredPart(part, answers, record, read_characters)

    def _temperatures(self, request: DecisionRequest) -> dict[str, float]:
        known, entry = self._client.environment.calibration, self._client.entry
        found = ((name, temperature_of(known, entry, question)) for name, question in request.questions.items())
        return {name: temperature for name, temperature in found if temperature is not None} if known else {}

    def _observe(self, part: DecisionPart, record: CallRecord) -> None:
        estimator, reported = self._client.environment.estimator, record.usage.total_input_tokens
        if estimator is not None and reported is not None and not record.usage.estimated:
            estimator.observe(self._client.entry.id, part.input_tokens, reported)


def _response(
    entry: ModelEntry, answers: Mapping[str, Answer], answered: Sequence[AnsweredPart], took_s: float
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
