"""What no mock can tell: that a real server's answers, streams, JSON and log-probabilities are read as they come.

The model is small: what it says is not tested, how it is brought here is.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from pydantic import BaseModel

from interlock.admission.outcome import OutcomeKind
from interlock.catalog.spec import ModelBinding, ModelSpec
from interlock.clients.conversation import Conversation
from interlock.clients.options import CallOptions
from interlock.clients.response import PieceKind, StopReason
from interlock.errors import OutputTruncatedError

CALM = CallOptions(temperature=0.0, seed=7)
QUESTION = Conversation.of("What is the capital of France? Answer with one short sentence.")
CAPITAL = Conversation.of(
    'Name the capital of France and its country. Answer with JSON only, like {"name": "Rome", "country": "Italy"}.'
)


class City(BaseModel):
    name: str
    country: str


async def test_chat(client):
    bound, seat = client
    response = await bound.single_response(QUESTION, options=CALM)
    assert "Paris" in response.text
    assert response.stop_reason is StopReason.END_TURN
    assert not response.usage.estimated
    assert 10 < response.usage.input_tokens < 100
    assert 0 < response.usage.output_tokens < 96
    assert [permit.outcomes[0].kind for permit in seat.permits] == [OutcomeKind.COMPLETED]
    assert seat.records[0].outcome == "ok"


async def test_a_conversation_goes_on(client):
    bound, _ = client
    first = await bound.single_response(QUESTION, options=CALM)
    second = await bound.single_response(QUESTION.assistant(first.blocks).user("And of Germany?"), options=CALM)
    assert "Berlin" in second.text


async def test_a_stream_equals_the_whole(client):
    bound, seat = client
    whole = await bound.single_response(QUESTION, options=CALM)
    async with bound.stream_response(QUESTION, options=CALM) as stream:
        pieces = [piece async for piece in stream]
    texts = [piece.text for piece in pieces if piece.kind is PieceKind.TEXT]
    assert len(texts) > 2
    assert "".join(texts) == stream.response.text == whole.text
    assert stream.response.stop_reason is StopReason.END_TURN
    assert stream.response.first_piece_s > 0
    assert len(seat.records) == 2


async def test_a_stream_that_is_left_is_settled(client):
    bound, seat = client
    async with bound.stream_response("Write a long story about a fox.", options=CALM) as stream:
        async for _ in stream:
            break
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.ABANDONED
    assert (await bound.single_response(QUESTION, options=CALM)).text, "the server goes on"


@pytest.mark.parametrize("mode", ["native", "tool"])
async def test_json_by_the_schema(template, make_seat, mode):
    """`native` is written as this server takes it: `options: {response_format: json_object}`."""
    entry = template.entry = template.entry.model_copy(update={"structured": mode})
    binding = ModelBinding(spec=ModelSpec("smollm2"), entry=entry, input_tokens=400, output_tokens=96)
    bound = template.bound(binding, make_seat(entry))
    response = await bound.single_response(CAPITAL, options=CALM, response_model=City)
    assert isinstance(response.parsed, City)
    streamed = await bound.stream_response(CAPITAL, options=CALM, response_model=City).finish()
    assert isinstance(streamed.parsed, City)


async def test_b12_a_cut_answer_is_told(template, binding, make_seat):
    bound = template.bound(replace(binding, output_tokens=4), make_seat(template.entry))
    with pytest.raises(OutputTruncatedError) as caught:
        await bound.single_response("Write a long story about a fox.", options=CALM)
    assert caught.value.partial
    assert caught.value.usage.output_tokens <= 5


async def test_log_probabilities(template, binding):
    """They are no part of a response; what reads them (a chat model as a decision model) reads the reply itself."""
    options = CallOptions(temperature=0.0, provider_options={"logprobs": True, "top_logprobs": 5})
    call = template.prepare(binding, "Is water wet? Answer yes or no.", options, None, stream=False)
    reply = await template.send(call.body)
    first = reply.payload["choices"][0]["logprobs"]["content"][0]
    top = {one["token"]: one["logprob"] for one in first["top_logprobs"]}
    assert len(top) == 5
    assert all(math.isfinite(value) and value <= 0 for value in top.values())
    assert sum(math.exp(value) for value in top.values()) <= 1 + 1e-6
    assert first["token"] == max(top, key=top.__getitem__)
