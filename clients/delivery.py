"""The two ends of a prepared call: its permit is drawn, and its complete answer is judged, settled, recorded and given
out. Whole and streamed answers share them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from interlock.catalog.tokens import estimate_text
from interlock.catalog.usage import Usage
from interlock.catalog.words import Kind
from interlock.errors import InterlockError, UpstreamError

from .answer import Answer, with_ids_of_its_own
from .conversation import Message, ServerToolBlock, TextBlock, ThinkingBlock, ToolUseBlock
from .gates import Judged, judge
from .lifecycle import CallAttempt
from .record import CallRecord, CallSeat
from .response import LLMResponse

if TYPE_CHECKING:
    from .abstract import AbstractLLMClient, Call

#: How often a paused turn is taken up again before its answer is returned as it is.
MAX_CONTINUATIONS = 8


def start(client: AbstractLLMClient, call: Call, seat: CallSeat, *, continuation: bool = False) -> CallAttempt:
    """The attempt of a prepared call: its permit is drawn here, once the client is ready to send."""
    failure: Exception | None = None
    try:
        client.ready()
    except InterlockError as error:
        failure = client.failure(error)
    if failure is not None:
        raise failure
    return CallAttempt(
        seat, client.entry, client.environment, Kind.CHAT, call.input_tokens, call.output_tokens, call.request_hash,
        continuation=continuation,
    )  # fmt: skip


async def deliver(client: AbstractLLMClient, call: Call, attempt: CallAttempt, answer: Answer) -> LLMResponse:
    """Judge a complete answer, settle and record it, and make the response. Shared by whole and streamed answers."""
    answer = with_ids_of_its_own(answer, call.conversation)
    usage = known_usage(answer, call)
    attempt.learn(
        usage=usage,
        request_id=answer.request_id,
        served_model=answer.served_model,
        stop_reason=None if answer.stop_reason is None else answer.stop_reason.value,
        reported=answer.reported,
        text=answer.text,
    )
    estimator = client.environment.estimator
    # What a tool of the provider's found is input too, and nothing that an estimate could know.
    if estimator is not None and not usage.estimated and not (call.server_tools or _used_tools(answer)):
        estimator.observe(client.entry.id, call.measured_tokens, usage.total_input_tokens)
    judged = _judged(client, call, replace(answer, usage=usage))
    if isinstance(judged, Exception):
        await attempt.fail(judged)
        raise judged
    record = await attempt.succeed()
    return _response(answer, judged, record)


def _judged(client: AbstractLLMClient, call: Call, answer: Answer) -> Judged | Exception:
    try:
        return judge(
            answer,
            conversation=call.conversation,
            shape=call.shape,
            answer_tool=call.answer_tool,
            limit=call.output_tokens,
            model=client.entry.id,
        )
    except UpstreamError as error:
        return client.failure(error)


def known_usage(answer: Answer, call: Call) -> Usage:
    """What was reported; counts that were not are estimated from what was sent and what came, and say so."""
    usage = answer.usage or Usage()
    if usage.input_tokens is not None and usage.output_tokens is not None:
        return usage
    wrote = sum(_written(block) for block in answer.blocks)
    return replace(
        usage,
        input_tokens=call.measured_tokens if usage.input_tokens is None else usage.input_tokens,
        output_tokens=wrote if usage.output_tokens is None else usage.output_tokens,
        estimated=True,
    )


def _used_tools(answer: Answer) -> bool:
    return any(isinstance(block, ServerToolBlock) for block in answer.blocks)


def _written(block: object) -> int:
    if isinstance(block, TextBlock | ThinkingBlock):
        return estimate_text(block.text)
    return estimate_text(str(block.input)) if isinstance(block, ToolUseBlock) else 0


def _response(answer: Answer, judged: Judged, record: CallRecord) -> LLMResponse:
    return LLMResponse(
        message=judged.message,
        stop_reason=judged.stop_reason,
        usage=record.usage,
        model=record.model,
        provider=record.provider,
        served_model=record.served_model,
        request_id=record.request_id,
        cost=record.cost,
        currency=record.currency,
        latency_s=record.latency_s,
        first_piece_s=record.first_piece_s,
        parsed=judged.parsed,
        refusal_category=answer.refusal_category,
        refusal_explanation=answer.refusal_explanation,
    )


def joined(first: LLMResponse, then: LLMResponse) -> LLMResponse:
    """A paused turn and its continuation as one answer, paid for together."""
    cost = None if first.cost is None or then.cost is None else first.cost + then.cost
    return replace(
        then,
        message=Message("assistant", (*first.blocks, *then.blocks)),
        usage=first.usage + then.usage,
        cost=cost,
        latency_s=first.latency_s + then.latency_s,
        first_piece_s=first.first_piece_s,
    )
