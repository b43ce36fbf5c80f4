"""Whatever schema pydantic makes of a type, the simulator's answer is an instance of that type."""

from __future__ import annotations

import datetime
import decimal
import enum
import ipaddress
import json
import uuid
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, create_model

from interlock.clients.simulator.answers import source_of
from interlock.clients.simulator.filling import UnfillableSchemaError, fill
from interlock.clients.simulator.patterns import matching

TEXT = "My parcel 4711 was charged twice. The invoice shows 2 payments of 19.90 EUR; billing must refund one."


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 3


class Tree(BaseModel):
    name: str
    children: list[Tree]
    parent: Tree | None = None


class Chain(BaseModel):
    model_config = ConfigDict(extra="forbid")
    value: int
    next: Chain | None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    good: bool


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


def filled(kind: Any, text: str = TEXT, seed: int = 0) -> Any:
    """The answer for a type, as it comes back from JSON."""
    schema = TypeAdapter(kind).json_schema()
    return json.loads(json.dumps(fill(schema, source_of(text, seed))))


def _bounded_int(low: int, span: int, step: int | None) -> Any:
    high = low + max(span, step or 0)
    return (
        Annotated[int, Field(ge=low, le=high, multiple_of=step)] if step else Annotated[int, Field(ge=low, lt=high + 1)]
    )


_leaves: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([str, int, float, bool, None, Any, Color, Size, datetime.date, datetime.datetime, datetime.time]),
    st.sampled_from(
        [datetime.timedelta, uuid.UUID, decimal.Decimal, AnyUrl, ipaddress.IPv4Address, bytes, Tree, Chain]
    ),
    st.sampled_from([Owner, Literal["billing", "sales"], Literal[1, 2, 3], Literal[None, "x"], Literal[True]]),
    st.builds(
        lambda low, span: Annotated[str, StringConstraints(min_length=low, max_length=low + span)],
        st.integers(0, 60),
        st.integers(0, 20),
    ),
    st.builds(_bounded_int, st.integers(-100, 100), st.integers(0, 50), st.sampled_from([None, None, 2, 5, 7])),
    st.builds(
        lambda low, span: Annotated[float, Field(gt=low, lt=low + span)],
        st.floats(-1e6, 1e6, allow_nan=False),
        st.floats(0.5, 100),
    ),
    st.sampled_from(
        [r"^[A-Z]{2,3}-\d{4}$", r"^(low|high)$", r"\w+@\w+\.(com|org)", r"^#[0-9a-f]{6}$", r"^\S+ \S+$"]
    ).map(lambda pattern: Annotated[str, StringConstraints(pattern=pattern)]),
)


def _sized(low: int, span: int) -> Any:
    return Field(min_length=low, max_length=low + span)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda each: Optional[each]),  # noqa: UP045
        inner.map(lambda each: list[each]),  # type: ignore[valid-type]
        st.builds(
            lambda each, low, span: Annotated[list[each], _sized(low, span)],  # type: ignore[valid-type]
            inner,
            st.integers(0, 5),
            st.integers(0, 3),
        ),
        st.builds(lambda low: Annotated[set[str], Field(min_length=low)], st.integers(0, 12)),
        inner.map(lambda each: dict[str, each]),  # type: ignore[valid-type]
        st.builds(
            lambda each, low: Annotated[dict[str, each], Field(min_length=low)],  # type: ignore[valid-type]
            inner,
            st.integers(0, 4),
        ),
        st.tuples(inner, inner).map(lambda pair: tuple[pair]),  # type: ignore[valid-type]
        inner.map(lambda each: tuple[each, ...]),  # type: ignore[valid-type]
        st.lists(inner, min_size=1, max_size=4).flatmap(_models),
    )


def _models(kinds: list[Any]) -> st.SearchStrategy[Any]:
    fields: dict[str, Any] = {}
    for index, kind in enumerate(kinds):
        required = index % 2 == 0
        fields[("summary", "count", "items", "detail")[index]] = (kind, ...) if required else (Optional[kind], None)  # noqa: UP045
    return st.just(create_model("Made", **fields))


_kinds = st.recursive(_leaves, _nested, max_leaves=6)


@settings(max_examples=150, deadline=None)
@given(kind=_kinds, text=st.one_of(st.just(TEXT), st.text(max_size=200)), seed=st.integers(0, 1000))
def test_what_is_filled_always_validates(kind: Any, text: str, seed: int) -> None:
    value = filled(kind, text, seed)
    TypeAdapter(kind).validate_json(json.dumps(value))


@settings(max_examples=50, deadline=None)
@given(kind=_kinds, seed=st.integers(0, 1000))
def test_the_same_is_filled_every_time(kind: Any, seed: int) -> None:
    assert filled(kind, seed=seed) == filled(kind, seed=seed)


def test_an_option_that_the_text_names_is_taken() -> None:
    assert filled(Literal["sales", "technical", "billing"]) == "billing"


def test_numbers_and_words_come_from_the_text() -> None:
    class Ticket(BaseModel):
        summary: str
        number: int = Field(ge=1000)
        tags: list[str]

    value = filled(Ticket)
    assert value["summary"] == "My parcel 4711 was charged twice."
    assert value["number"] == 4711
    assert value["tags"] == ["parcel", "charged", "twice"]


def test_a_definition_that_contains_itself_ends() -> None:
    value = filled(Tree)
    depth = 0
    while value["children"]:
        value, depth = value["children"][0], depth + 1
    assert depth <= 3
    assert filled(Chain)["next"] is not None


def test_strict_schemas_with_nullable_recursion_end() -> None:
    node = {"type": "object", "required": ["next"], "additionalProperties": False}
    node["properties"] = {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}
    value = fill({"$ref": "#/$defs/Node", "$defs": {"Node": node}}, source_of(TEXT, 0))
    assert json.dumps(value).count("next") <= 3


def test_one_of_all_of_and_patterned_names() -> None:
    schema = {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]},
            {"properties": {"a": {"type": "integer", "maximum": 3}, "b": {"const": "x"}}, "required": ["b"]},
        ]
    }
    assert fill(schema, source_of(TEXT, 0))["b"] == "x"
    named = fill(
        {"type": "object", "patternProperties": {"^k_[a-z]+$": {"type": "null"}}, "minProperties": 2},
        source_of(TEXT, 0),
    )
    assert len(named) == 2
    assert all(name.startswith("k_") for name in named)
    assert fill({"oneOf": [False, {"type": ["null", "integer"]}]}, source_of(TEXT, 0)) is not None


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"enum": []},
        {"$ref": "#/$defs/Missing"},
        {"$ref": "https://example.com/schema"},
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
        {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}},
        {"type": "string", "pattern": "^a$", "minLength": 5},
        {"type": "array", "items": {"enum": [1]}, "uniqueItems": True, "minItems": 2},
    ],
)
def test_a_schema_without_a_value_is_said_to_be_one(schema: Any) -> None:
    with pytest.raises(UnfillableSchemaError):
        fill(schema, source_of(TEXT, 0))


@settings(max_examples=60, deadline=None)
@given(
    pattern=st.sampled_from(
        [
            r"^\d{3}-\d{2}$",
            r"[^aeiou]+",
            r"(?i)^yes|no$",
            r"^(a|b)+c?$",
            r"^(?P<x>[a-f])-(?P=x)$",
            r"^.{5,9}$",
            r"\bword\b",
        ]
    ),
    choice=st.integers(0, 2**32),
)
def test_a_string_for_a_pattern_matches_it(pattern: str, choice: int) -> None:
    import re

    found = matching(pattern, choice)
    assert found is not None
    assert re.search(pattern, found)


def test_a_pattern_that_is_none_has_no_string() -> None:
    assert matching("([", 0) is None
