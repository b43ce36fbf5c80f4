"""What the journal writes comes back as it was, also by a later version, also in another process; errors too."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, Field, RootModel

import interlock
from interlock import errors
from interlock.catalog.usage import Usage
from interlock.clients.conversation import (
    Conversation,
    Message,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)
from interlock.clients.response import LLMResponse, StopReason
from interlock.decisions.response import ChoiceAnswer
from interlock.embeddings.response import EmbeddingsResponse
from interlock.errors import InterlockError, RateLimitedError, ReplayedError, UnencodableError
from interlock.runtime import EmbeddingCall, Job, LLMCall
from interlock.runtime.journal import names
from interlock.runtime.journal.codec import dumps, loads
from interlock.runtime.journal.failures import dumps_error
from interlock.runtime.journal.fingerprint import fingerprint_of
from interlock.runtime.journal.names import journaled_as


class Colour(Enum):
    RED = "r"


class Point(NamedTuple):
    x: int
    y: float


@dataclass(frozen=True)
class Inner:
    when: datetime
    tags: frozenset[str] = frozenset()


class Model(BaseModel):
    name: str = Field(alias="theName")
    inner: Inner | None = None
    many: tuple[int, ...] = ()


class Names(RootModel[list[str]]):
    pass


def back(value: Any) -> Any:
    return loads(dumps(value, "the value"), "the value")


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.just("!"), inner)
        | st.dictionaries(st.integers() | st.text(), inner)
    ),
    max_leaves=12,
)


@given(plain)
def test_plain_data_comes_back_with_its_types(value: Any) -> None:
    text = dumps(value, "x")
    assert text.isascii()
    assert "\0" not in text
    read = back(value)
    assert read == value
    assert repr(read) == repr(value)  # 1 is not True, a tuple is no list, 0.0 is not -0.0


@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2))),
        date(2026, 1, 2),
        time(3, 4),
        timedelta(days=-1, microseconds=3),
        UUID(int=7),
        Path("/a/b"),
        {1, 2},
        frozenset({("a", 1)}),
        Colour.RED,
        Point(1, 2.0),
        Inner(datetime(2026, 1, 1, tzinfo=UTC), frozenset({"a"})),
        Model(theName="n", inner=Inner(datetime(2026, 1, 1)), many=(1, 2)),
        Names(["a", "b"]),
        Model,
        Conversation.of("hello", system="s"),
        ChoiceAnswer(choice="a", probabilities={"a": 0.75, "b": 0.25}),
        LLMResponse(
            message=Message(
                "assistant",
                (
                    ThinkingBlock(text="hm", signature="sig"),
                    TextBlock("\0 \ud800"),
                    ToolUseBlock(id="i", name="t", input={"a": [1]}),
                    ServerToolBlock(kind="found", payload={"!": 1, "a": [0.1, None]}, signed_by="w"),
                ),
            ),
            stop_reason=StopReason.TOOL_USE,
            usage=Usage(input_tokens=3),
            model="m",
            provider="p",
            cost=Decimal("0.10"),
            parsed=Model(theName="p"),
        ),
    ],
)
def test_each_kind_of_value_comes_back(value: Any) -> None:
    read = back(value)
    assert read == value
    assert type(read) is type(value)
    if isinstance(value, BaseModel):
        assert read.model_fields_set == value.model_fields_set


def test_vectors_take_their_bytes_and_a_third() -> None:
    vectors = np.random.default_rng(1).normal(size=(3, 1024)).astype(np.float32)
    response = EmbeddingsResponse(vectors=vectors, usage=Usage(), model="m", provider="p")
    text = dumps(response, "x")
    assert len(text) < vectors.nbytes * 4 / 3 + 600
    read = loads(text, "x")
    assert read.vectors.dtype == np.float32
    assert np.array_equal(read.vectors, vectors)
    assert read.vectors.flags.writeable
    assert (back(np.float32(1.5)), back(np.arange(3)[::-1]).tolist()) == (np.float32(1.5), [2, 1, 0])


def test_what_cannot_be_written_names_its_place_and_its_type() -> None:
    class Odd:
        pass

    with pytest.raises(UnencodableError, match=r"the answer\['a'\]\[1\] is of type .*Odd"):
        dumps({"a": [0, Odd()]}, "the answer")
    with pytest.raises(UnencodableError, match="array of objects"):
        dumps(np.array([Odd()]), "x")

    cyclic: list[Any] = []
    cyclic.append({"a": cyclic})
    with pytest.raises(UnencodableError, match="the answer is of type list and holds itself, or is nested too deep"):
        dumps(cyclic, "the answer")
    with pytest.raises(UnencodableError, match="the answer cannot be written as JSON: Exceeds the limit"):
        dumps([10**5_000], "the answer")

    @dataclass
    class Local:
        x: int

    with pytest.raises(UnencodableError, match=r"x: class .*Local cannot be found by its name.*top of a module"):
        dumps(Local(1), "x")


def test_nothing_but_data_is_looked_up_by_a_name() -> None:
    for name in ("os:system", "subprocess:Popen", "builtins:eval", "interlock:Runtime", "nowhere:X", "acme"):
        with pytest.raises(UnencodableError):
            loads(json.dumps({"!": "data", "t": name, "v": {}}), "x")
    with pytest.raises(UnencodableError, match="'later', which this version does not know"):
        loads('{"!": "later"}', "x")


def test_what_was_written_before_a_field_existed_is_read_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_CLASSES", {})
    monkeypatch.setattr(names, "_NAMES", {})
    old = journaled_as("acme.triage")(make_dataclass("Triage", [("text", str), ("gone", int)], frozen=True))
    text = dumps(old("t", 1), "x")
    names._CLASSES.clear()
    new = journaled_as("acme.triage")(
        make_dataclass("Sorted", [("text", str), ("tags", tuple[str, ...], field(default=("new",)))], frozen=True)
    )
    assert loads(text, "x") == new("t", ("new",))
    names._CLASSES.clear()
    journaled_as("acme.triage")(make_dataclass("Strict", [("text", str), ("must", int)]))
    with pytest.raises(UnencodableError, match=r"x: what was recorded of Strict has no must.*default"):
        loads(text, "x")
    with pytest.raises(ValueError, match="taken"):
        journaled_as("acme.triage")(make_dataclass("Other", []))


# Errors.


def all_errors(kind: type[InterlockError] = InterlockError) -> list[type[InterlockError]]:
    return [kind, *(found for below in kind.__subclasses__() for found in all_errors(below))]


@pytest.mark.parametrize("kind", [kind for kind in all_errors() if kind.__module__ == errors.__name__])
def test_b60_every_error_comes_back_with_what_is_known_of_it(kind: type[InterlockError]) -> None:
    error = kind.__new__(kind, "it went wrong")
    error.args = ("it went wrong",)
    error.__dict__.update(status=429, retry_after_s=2.5, usage=Usage(input_tokens=1), problems=("a", "b"), model=None)
    error.__cause__ = ValueError("the cause")
    read = loads(dumps_error(error, str), "x")
    assert type(read) is kind
    assert (str(read), read.__dict__) == (str(error), error.__dict__)
    assert repr(read.__cause__) == "ValueError('the cause')"


class TheirsError(Exception):
    def __init__(self, code: int, *, where: str) -> None:
        super().__init__(f"{code} at {where}")
        self.where, self.handle = where, object()


def test_a_users_error_keeps_its_class_its_words_and_what_can_be_written() -> None:
    read = loads(dumps_error(TheirsError(3, where="here"), str), "x")
    assert type(read) is TheirsError
    assert (str(read), read.where) == ("3 at here", "here")
    assert not hasattr(read, "handle")

    class LocalError(Exception):
        pass

    stands_in = loads(dumps_error(LocalError("lost"), str), "x")
    assert isinstance(stands_in, ReplayedError)
    assert (stands_in.kind.rpartition(".")[2], str(stands_in).rpartition(".")[2]) == ("LocalError", "LocalError: lost")


def test_an_error_is_written_without_its_secrets() -> None:
    error = RateLimitedError("key sk-123 is at its limit", model="m", request_id="sk-123")
    text = dumps_error(error, lambda said: said.replace("sk-123", "[redacted]"))
    assert "sk-123" not in text
    assert "[redacted]" in str(loads(text, "x"))


def test_an_error_that_fails_to_tell_of_itself_is_told_all_the_same() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert "Mute" in str(loads(dumps_error(Mute(), str), "x"))


# Fingerprints.


@dataclass(frozen=True)
class Summarise(Job[str]):
    text: str
    style: str = "plain"
    client: Any = field(default=None, compare=False)
    SPEC: ClassVar = "x"


def test_a_fingerprint_is_the_type_and_the_fields_and_nothing_of_the_moment() -> None:
    one = fingerprint_of(Summarise("t"))
    assert one == fingerprint_of(Summarise("t", client=object()))
    assert one != fingerprint_of(Summarise("u"))
    assert one != fingerprint_of(Summarise("t", style="terse"))
    call = LLMCall("hello", system="s", max_output_tokens=10)
    same = LLMCall("hello", system="s", max_output_tokens=10, timeout_s=5, priority=3, upstream_retries=0)
    assert fingerprint_of(call) == fingerprint_of(same), "how it is run is not what it asks"
    longer = fingerprint_of(LLMCall("hello", system="s", max_output_tokens=20))
    assert fingerprint_of(call).partition("@")[::2] == (longer.partition("@")[0], "10")
    assert (
        fingerprint_of(call).partition("@")[0]
        != fingerprint_of(LLMCall("hello", max_output_tokens=10)).partition("@")[0]
    )
    assert fingerprint_of(EmbeddingCall("a")) != fingerprint_of(EmbeddingCall("b"))


def test_a_field_with_a_default_that_is_added_later_changes_no_fingerprint() -> None:
    old = make_dataclass("Grows", [("text", str)], bases=(Job,), frozen=True)
    new = make_dataclass("Grows", [("text", str), ("more", int, field(default=3))], bases=(Job,), frozen=True)
    assert fingerprint_of(old("t")) == fingerprint_of(new("t"))
    assert fingerprint_of(old("t")) != fingerprint_of(new("t", 4))


def test_a_fingerprint_is_the_same_in_another_process() -> None:
    program = (
        "from interlock import *\nfrom interlock.runtime.journal.fingerprint import fingerprint, fingerprint_of\n"
        "call = LLMCall('x', model=Grade.LARGE, avoid={'a', 'b', 'c'})\n"
        "print(fingerprint_of(call), fingerprint('f', {'x', 'y', 'z'}))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
    assert interlock.LLMCall.__name__ in told.pop()
