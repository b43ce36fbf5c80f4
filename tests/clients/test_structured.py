"""Typed answers: extraction, validation, schema dialects, corrections. Pure."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from interlock.clients.answer import Answer, BadToolCall
from interlock.clients.conversation import Conversation, TextBlock, ToolResultBlock, ToolUseBlock
from interlock.clients.extract import NotOneValue, one_value
from interlock.clients.response import StopReason
from interlock.clients.schema import ANTHROPIC, OPENAI, UnsupportedSchema, strict_schema
from interlock.clients.structured import Shape, WrongShape, correction
from interlock.errors import InvalidRequestError

FENCE = "`" * 3

# Extraction.


@pytest.mark.parametrize(("text", "value"), [
    ('{"a": 1}', {"a": 1}), ("  [1, 2]\n", [1, 2]), ("7", 7), ('"word"', "word"), ("null", None),
    (f'{FENCE}json\n{{"a": 1}}\n{FENCE}\nUse {{braces}} as you like.', {"a": 1}),
    (f'Here:\n{FENCE}\n{{"a": 1}}\n{FENCE}', {"a": 1}),
    (json.dumps({"code": f"{FENCE}json\n{{}}\n{FENCE}"}), {"code": f"{FENCE}json\n{{}}\n{FENCE}"}),
    (FENCE + "json\n" + json.dumps({"code": f"a {FENCE}json b"}) + "\n" + FENCE, {"code": f"a {FENCE}json b"}),
    (f'{FENCE}`json\n{{"a": "{FENCE}"}}\n{FENCE}`', {"a": FENCE}),
    ('Use `x` like this: {"a": 1}', {"a": 1}), ('The answer is {"a": 1}. Done.', {"a": 1}),
    (f'{FENCE}json\n{{"a": 1}}', {"a": 1}),
    ('{not json} but {"a": 1}', {"a": 1}), ("Sure! [1] it is.", [1]),
])  # fmt: skip
def test_b64_fence_extraction(text, value):
    assert one_value(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "no value here",
        '{"a": 1} {"a": 2}',
        '{"a": 1} or {"b": 2}?',
        "NaN",
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": 1}}',
        "9" * 5_000,
        '{"a": ' + "9" * 5_000 + "}",
        '{"a": 1',
        "[1, 2",
        "{'a': 1}",
        "[" * 50_000,
        '{"a":' * 50_000,
        "{" * 50_000,
    ],
    ids=range(20),
)
def test_b64_not_one_value(text):
    began = time.process_time()
    with pytest.raises(NotOneValue):
        one_value(text)
    assert time.process_time() - began < 2


@given(st.text(alphabet=st.sampled_from('{}[]"`:,1eE.nN \n\\at-'), max_size=80) | st.text(max_size=80))
def test_b64_any_text_is_a_value_or_not_one(text):
    try:
        value = one_value(text)
    except NotOneValue:
        return
    json.dumps(value, allow_nan=False)


json_objects = st.dictionaries(st.text(max_size=8), st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8,
), min_size=1, max_size=4)  # fmt: skip


@given(json_objects, st.sampled_from(["", "Here you are:\n", "Of course. "]), st.booleans(), st.booleans())
def test_b64_whatever_stands_around_it(value, before, fenced, indented):
    text = json.dumps(value, ensure_ascii=False, indent=2 if indented else None)
    wrapped = f"{before}\n{FENCE}json\n{text}\n{FENCE}\nThat is all." if fenced else before + text
    assert one_value(wrapped) == value


# Types.


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    name: str
    price: Decimal = Field(ge=0)
    day: date | None = None
    colour: Colour = Colour.RED
    tags: Annotated[list[str], Field(max_length=3)] = []


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


class Entry(TypedDict):
    word: str
    count: int


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    note: str | None = None


class Counts(BaseModel):
    by_word: dict[str, int]


@pytest.mark.parametrize(("wanted", "text", "value"), [
    (Item, '{"name": "cup", "price": "3.50", "day": "2026-11-30", "colour": "blue"}',
     Item(name="cup", price=Decimal("3.50"), day=date(2026, 11, 30), colour=Colour.BLUE)),
    (Point, '{"x": 1}', Point(1)),
    (Entry, '{"word": "a", "count": 2}', {"word": "a", "count": 2}),
    (list[int], '{"value": [1, 2]}', [1, 2]), (list[int], "[1, 2]", [1, 2]), (int, "7", 7), (int, '{"value": 7}', 7),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (Owner, '{"pet": {"kind": "dog", "tricks": []}}', Owner(pet=Dog(kind="dog", tricks=[]))),
    (Literal["yes", "no"], '{"value": "yes"}', "yes"),
    (Tree, '{"value": 1, "children": [{"value": 2}]}', Tree(value=1, children=[Tree(value=2)])),
])  # fmt: skip
def test_typed_values(wanted, text, value):
    assert Shape.of(wanted).parse(text) == value


@pytest.mark.parametrize(
    ("wanted", "text", "problem"),
    [
        (Item, '{"name": "cup"}', "price: Field required"),
        (Item, '{"name": "cup", "price": -1}', "price"),
        (Point, "[]", "the answer"),
        (list[int], '{"value": ["x"]}', "0:"),
        (Owner, '{"pet": {"kind": "cow"}}', "pet"),
        (int, "words", "no JSON value"),
        (Item, "\ud800", "no JSON value"),
        (Item, '{"name": "\\ud800", "price": 1}', "half a character"),
    ],
)
def test_wrong_values_are_told_without_repeating_them(wanted, text, problem):
    with pytest.raises(WrongShape, match=problem):
        Shape.of(wanted).parse(text)


def test_a_long_list_of_problems_is_cut():
    with pytest.raises(WrongShape, match="and 40 more") as caught:
        Shape.of(list[int]).parse(json.dumps(["x"] * 50))
    assert len(str(caught.value)) < 2_000


def test_a_type_without_a_schema_is_refused_before_sending():
    class Odd:
        pass

    with pytest.raises(InvalidRequestError) as caught:
        Shape.of(Odd)
    assert caught.value.sent is False


@given(st.text(max_size=60) | json_objects.map(json.dumps))
def test_any_text_parses_or_is_the_wrong_shape(text):
    for wanted in (Item, Tree, list[int]):
        with suppress(WrongShape):
            Shape.of(wanted).parse(text)


# Schema dialects.

SCHEMAS = [Item, Point, Entry, list[int], Owner, Literal["yes", "no"]]


def every_schema(schema: Any) -> list[dict[str, Any]]:
    """Each schema that stands in a schema."""
    found = [schema]
    for word, value in schema.items():
        if word in ("properties", "$defs"):
            inner = list(value.values())
        elif word == "items":
            inner = [value]
        elif word == "anyOf":
            inner = value
        else:
            continue
        for each in inner:
            found += every_schema(each)
    return found


@pytest.mark.parametrize("wanted", SCHEMAS, ids=str)
@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC], ids=lambda dialect: dialect.name)
def test_b70_schema_dialects(wanted, dialect):
    shape = Shape.of(wanted)
    before = json.dumps(shape.schema)
    strict = shape.strict(dialect)
    assert json.dumps(shape.schema) == before, "the type's own schema is not changed"
    assert strict["type"] == "object"
    names = set(strict.get("$defs", {}))
    for schema in every_schema(strict):
        assert not schema.keys() & {"default", "oneOf", "discriminator", "allOf", "additionalItems"}
        if "$ref" in schema:
            assert schema.keys() == {"$ref"}
            assert schema["$ref"].removeprefix("#/$defs/") in names, "no dangling reference"
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False
            if dialect.all_required:
                assert schema["required"] == list(schema["properties"])
        if dialect is ANTHROPIC:
            assert not schema.keys() & {"minimum", "maximum", "maxItems", "minItems", "pattern", "maxLength"}


def test_b70_what_a_dialect_cannot_say_of_a_value_stands_in_the_description():
    tags = Shape.of(Item).strict(ANTHROPIC)["properties"]["tags"]
    assert "maxItems" in tags["description"]
    assert Shape.of(Item).strict(OPENAI)["properties"]["tags"]["maxItems"] == 3


@pytest.mark.parametrize(("wanted", "dialect", "construct"), [
    (Counts, OPENAI, "free keys"), (Counts, ANTHROPIC, "free keys"), (Tree, ANTHROPIC, "recursive"),
    (list[Any], OPENAI, "anything"), (tuple[int, str], OPENAI, "prefixItems"), (dict[str, int], ANTHROPIC, "free keys"),
], ids=lambda value: getattr(value, "name", None) or getattr(value, "__name__", str(value)))  # fmt: skip
def test_b70_what_cannot_be_said_is_named(wanted, dialect, construct):
    with pytest.raises(UnsupportedSchema, match=construct):
        Shape.of(wanted).strict(dialect)


def test_b70_recursion_does_not_loop():
    strict = Shape.of(Tree).strict(OPENAI)
    assert strict["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(500):
        deep = {"type": "array", "items": deep}
    with pytest.raises(UnsupportedSchema):
        strict_schema(deep, OPENAI)


# Corrections.


def answered(*blocks: Any, bad: tuple[BadToolCall, ...] = ()) -> Answer:
    return Answer(blocks=blocks, stop_reason=StopReason.END_TURN, bad_tool_calls=bad)


def test_b24_reask_answers_every_tool_call_once_in_order():
    asked = Conversation.of("Review it.", system="Be brief.")
    answer = answered(
        TextBlock("Let me see."),
        ToolUseBlock(id="a", name="answer", input={"stars": "x"}),
        ToolUseBlock(id="b", name="other", input={}),
        ToolUseBlock(id="c", name="answer", input={}),
        bad=(BadToolCall(id="b", name="other", problem="the arguments are not JSON"),),
    )
    asked_again = correction(asked, answer, "stars: not a number")
    assert asked.messages == Conversation.of("Review it.").messages
    assert asked_again.system == "Be brief."
    assert asked_again.messages[1].blocks == answer.blocks
    results = asked_again.messages[2].blocks
    assert [result.tool_use_id for result in results if isinstance(result, ToolResultBlock)] == ["a", "b", "c"]
    assert len(results) == 3
    assert all(result.is_error for result in results if isinstance(result, ToolResultBlock))
    assert "stars: not a number" in results[0].content  # type: ignore[union-attr]
    assert results[1].content == "the arguments are not JSON"  # type: ignore[union-attr]


def test_a_correction_of_text_is_told_in_text():
    asked_again = correction(Conversation.of("Review it."), answered(TextBlock("Four stars.")), "no JSON value")
    assert [message.role for message in asked_again.messages] == ["user", "assistant", "user"]
    assert "no JSON value" in asked_again.messages[-1].text


def test_b62_a_blank_wrong_turn_is_not_sent_back():
    asked_again = correction(Conversation.of("Review it."), answered(TextBlock(" \n")), "the answer is empty")
    assert [message.role for message in asked_again.messages] == ["user", "user"]
