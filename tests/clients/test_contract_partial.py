"""A typed answer while it streams, in each way of asking for one; and typed answers that are no pydantic models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel
from typing_extensions import TypedDict

from interlock.clients.partial import PartialObject
from interlock.clients.response import Piece, PieceKind
from interlock.clients.simulator import Answer, Step, ToolCall

from .conftest import asked

REVIEW = {"title": "A quiet place", "notes": ["good coffee", "slow service"], "stars": 4}
WHOLE = '{"title": "A quiet place", "notes": ["good coffee", "slow service"], "stars": 4}'


class Review(BaseModel):
    title: str
    notes: list[str]
    stars: int


class Told(TypedDict):
    title: str
    notes: list[str]
    stars: int


@dataclass
class Kept:
    title: str
    notes: list[str]
    stars: int


def is_begun(part: Any, whole: Any) -> bool:
    """Whether `part` is what may stand there while `whole` is being written."""
    if isinstance(whole, dict):
        return isinstance(part, dict) and all(key in whole and is_begun(part[key], whole[key]) for key in part)
    if isinstance(whole, list):
        return isinstance(part, list) and all(map(is_begun, part, whole))
    if isinstance(whole, str):
        return isinstance(part, str) and whole.startswith(part)
    return bool(str(whole).startswith(str(part)))


@pytest.mark.parametrize("mode", ["native", "tool", "prompt"])
async def test_a_typed_answer_grows_as_it_comes(bench, wire, mode):
    client, _ = bench.client(wire, structured=mode)
    pieces = tuple(WHOLE[at : at + 9] for at in range(0, len(WHOLE), 9))
    if mode == "tool":
        bench.script(Step.answer(tool_calls=[ToolCall(name="Review", input=REVIEW)]))
    else:
        bench.script(Step(name="pieces", reply=Answer(text=WHOLE, pieces=pieces)))
    seen: list[Any] = []
    async with client.stream_response("Review it.", response_model=Review) as stream:
        assert stream.partial_object is None
        async for piece in stream:
            if piece.kind is PieceKind.TOOL_JSON:
                assert piece.tool == "Review"
            seen.append(stream.partial_object)
    assert stream.response.parsed == Review(**REVIEW)
    assert stream.partial_object == REVIEW
    assert all(is_begun(part, REVIEW) for part in seen if part is not None)
    if mode != "tool" and wire.id != "litellm-anthropic":  # there LiteLLM gives an answer in JSON at once
        assert len({str(part) for part in seen}) > 3, "it is seen growing"


@pytest.mark.parametrize("wanted", [Told, Kept], ids=["typed-dict", "dataclass"])
@pytest.mark.parametrize("mode", ["native", "tool", "prompt"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_typed_dicts_and_dataclasses_are_answers(bench, wire, mode, wanted, streamed):
    client, _ = bench.client(wire, structured=mode)
    bench.script(Step.answer(WHOLE) if mode == "prompt" else Step.answer(json=REVIEW))
    response = await asked(client, "Review it.", streamed=streamed, response_model=wanted)
    assert type(response.parsed) is (dict if wanted is Told else Kept)
    assert response.parsed == (REVIEW if wanted is Told else Kept(**REVIEW))


async def test_without_a_type_there_is_no_object(bench, wire):
    client, _ = bench.client(wire)
    bench.script(Step.answer(WHOLE))
    async with client.stream_response("Review it.") as stream:
        async for _ in stream:
            assert stream.partial_object is None


def text(part: str) -> Piece:
    return Piece(kind=PieceKind.TEXT, text=part)


def test_what_stands_around_it_is_passed_over() -> None:
    found = PartialObject(Review)
    states = []
    for part in ("Sure:\n```json\n", '{"title": "A', ' b"', ', "stars": 4}', "\n```\nAnything else?"):
        found.add(text(part))
        states.append(found.value)
    assert states == [None, {"title": "A"}, {"title": "A b"}, *[{"title": "A b", "stars": 4}] * 2]


def test_the_arguments_of_other_tools_are_not_the_answer() -> None:
    found = PartialObject(Review)
    found.add(Piece(kind=PieceKind.TOOL_JSON, text='{"place": "here"}', tool="weather"))
    found.add(Piece(kind=PieceKind.THINKING, text='{"title": "no"}'))
    assert found.value is None


def test_a_list_grows_without_what_it_was_wrapped_in() -> None:
    found = PartialObject(list[int])
    states = []
    for part in ('{"va', 'lue": [', "1, 2", ", 3]}"):
        found.add(text(part))
        states.append(found.value)
    assert states == [None, [], [1, 2], [1, 2, 3]]


@given(st.lists(st.text(alphabet='{}[]":,0123456789abe\\u \n\ud83d', max_size=12), max_size=8))
def test_whatever_comes_it_raises_nothing(parts: list[str]) -> None:
    found = PartialObject(Review)
    for part in parts:
        found.add(text(part))
        assert found.value is None or isinstance(found.value, dict)
