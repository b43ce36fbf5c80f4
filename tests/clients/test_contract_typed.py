"""What every chat provider must do with a typed answer, in each way of asking for one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from interlock.admission.outcome import OutcomeKind
from interlock.clients.conversation import Conversation
from interlock.clients.response import StopReason
from interlock.clients.simulator import Step, ToolCall
from interlock.errors import (
    InvalidRequestError,
    ResponseShapeError,
)

from .conftest import asked


class Review(BaseModel):
    title: str
    stars: int


# Typed answers.


@pytest.mark.parametrize("mode", ["native", "tool", "tool_auto", "prompt"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_typed_answer(bench, wire, mode, streamed):
    client, seat = bench.client(wire, structured=mode)
    given = {"native": {"json": {"title": "Fine", "stars": 4}}, "tool": {"json": {"title": "Fine", "stars": 4}},
             "tool_auto": {"tool_calls": [ToolCall(name="Review", input={"title": "Fine", "stars": 4})]},
             "prompt": {"text": 'Sure:\n```json\n{"title": "Fine", "stars": 4}\n```'}}[mode]  # fmt: skip
    bench.script(Step.answer(**given))
    response = await asked(client, "Review it.", streamed=streamed, response_model=Review)
    assert response.parsed == Review(title="Fine", stars=4)
    assert response.stop_reason is StopReason.END_TURN
    assert response.tool_calls == ()
    assert seat.kinds == [OutcomeKind.COMPLETED]
    # What it said goes back as it is, and the next turn is accepted.
    await client.single_response(Conversation.of("Review it.").assistant(response.blocks).user("Thanks."))


async def test_the_simulated_provider_fills_the_schema(bench, wire):
    client, _ = bench.client(wire)
    response = await client.single_response("Review the coffee of this place.", response_model=Review)
    assert isinstance(response.parsed, Review)


@pytest.mark.parametrize("mode", ["native", "tool", "prompt"])
async def test_b42_wrong_shape_carries_usage_and_a_correction(bench, wire, mode):
    client, seat = bench.client(wire, structured=mode)
    wrong: dict[str, Any] = {"title": "Fine", "stars": "many"}
    bench.script(Step.answer(json=wrong, input_tokens=10, output_tokens=5) if mode != "prompt"
                 else Step.answer("Four stars.", input_tokens=10, output_tokens=5))  # fmt: skip
    question = Conversation.of("Review it.")
    with pytest.raises(ResponseShapeError) as caught:
        await client.single_response(question, response_model=Review)
    error = caught.value
    assert (error.usage.input_tokens, error.usage.output_tokens) == (10, 5)
    assert len(error.problems) == 1
    assert question == Conversation.of("Review it."), "the caller's conversation is not touched"
    assert error.correction.messages[: len(question.messages)] == question.messages
    # The correction is a turn that the provider takes, and the model is told what was wrong.
    bench.script(Step.answer(json={"title": "Fine", "stars": 4}) if mode != "prompt"
                 else Step.answer('{"title": "Fine", "stars": 4}'))  # fmt: skip
    response = await client.single_response(error.correction, response_model=Review)
    assert response.parsed == Review(title="Fine", stars=4)
    assert "stars" in bench.provider.requests[-1].text or mode == "prompt"
    assert [record.outcome for record in seat.records] == ["response_shape", "ok"]
    seat.check_books()


# Schemas, against a server that refuses what the real ones refuse.


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float = Field(gt=0)


class Square(BaseModel):
    kind: Literal["square"]
    side: float


class Drawing(BaseModel):
    name: str = Field(max_length=40, pattern="^[a-z ]*$")
    shape: Annotated[Circle | Square, Field(discriminator="kind")]
    colour: Literal["red", "blue"] = "red"
    note: str | None = None
    tags: Annotated[list[str], Field(max_length=3)] = []


class Branch(BaseModel):
    word: str
    branches: list[Branch] = []


class Counts(BaseModel):
    by_word: dict[str, int]


@pytest.mark.parametrize(("wanted", "given"), [
    (Drawing, {"name": "one", "shape": {"kind": "circle", "radius": 1.5}, "colour": "blue", "note": None, "tags": []}),
    (Branch, {"word": "a", "branches": [{"word": "b", "branches": []}]}),
    (Counts, {"by_word": {"a": 1}}),
    (list[Circle], {"value": [{"kind": "circle", "radius": 2.0}]}),
    (int, {"value": 7}),
], ids=["nested", "recursive", "free-keys", "list", "number"])  # fmt: skip
@pytest.mark.parametrize("mode", ["native", "tool"])
async def test_b70_schemas_that_a_strict_server_takes(bench, wire, mode, wanted, given):
    client, _ = bench.client(wire, structured=mode)
    bench.script(Step.answer(json=given))
    response = await client.single_response("Draw it.", response_model=wanted)
    assert TypeAdapter(wanted).dump_python(response.parsed) == given.get("value", given)
    assert bench.provider.count == 1


async def test_b70_a_schema_that_a_server_refuses_is_not_asked_again(bench, wire):
    client, seat = bench.client(wire)
    bench.script(Step.status(400, message="Invalid schema for response_format"))
    with pytest.raises(InvalidRequestError) as caught:
        await client.single_response("Review it.", response_model=Review)
    assert not caught.value.retryable
    assert seat.kinds == [OutcomeKind.REJECTED]
