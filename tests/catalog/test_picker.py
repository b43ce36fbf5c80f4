"""From a spec to an entry: pins, then the cheapest of the grade, then the next grade up; why others were skipped."""

from __future__ import annotations

import logging
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interlock.catalog import (
    Catalog,
    DefaultPicker,
    Grade,
    Input,
    Kind,
    ModelEntry,
    ModelSpec,
    Prices,
    Seat,
    Situation,
    Status,
    bind,
)
from interlock.catalog.picker import PassedOver, Unable
from interlock.errors import ContextWindowExceededError, ModelResolutionError

PICKER = DefaultPicker()


def model(name: str, grade: Grade = Grade.SMALL, price: str | None = "1", **fields) -> ModelEntry:
    prices = None if price is None else Prices(input=Decimal(price), output=Decimal(price))
    known = {"provider": "p", "wire_model_id": name, "prices": prices, **fields}
    return ModelEntry(id=name, grade=grade, **known)


CATALOG = Catalog.of(
    [
        model("small-dear", price="9"),
        model("small-cheap", price="1"),
        model("small-pinned", price="5"),
        model("small-unpriced", price=None),
        model("small-simulated", price="0", named_only=True),
        model("small-closed", price="0", status=Status.DISABLED),
        model("small-old", price="0", status=Status.DEPRECATED),
        model("medium", Grade.MEDIUM, "20"),
        model("large-wide", Grade.LARGE, "30", context_window=1_000, inputs=[Input.TEXT, Input.IMAGES]),
        ModelEntry(id="vectors", kind=Kind.EMBEDDINGS, provider="p", wire_model_id="v", dimensions=8),
        ModelEntry(id="vectors-2", kind=Kind.EMBEDDINGS, provider="p", wire_model_id="v", dimensions=8),
    ],
    pins={Grade.SMALL: "small-pinned", "embeddings": "vectors-2"},
)


def pick(
    spec: ModelSpec,
    unable: Callable[[ModelEntry], str | None] = lambda entry: None,
    *,
    catalog: Catalog = CATALOG,
    input_tokens: int = 0,
) -> str:
    seat = Seat(kind=spec.kind, spec=spec, input_tokens=input_tokens)
    return PICKER.pick(seat, Situation(catalog=catalog, callable=unable)).id


def without(*names: str) -> Callable[[ModelEntry], str | None]:
    return lambda entry: "its key is not set" if entry.id in names else None


def test_a_grade_is_served_by_its_pin_then_the_cheapest_then_the_next_grade_up() -> None:
    order = ["small-pinned", "small-cheap", "small-dear", "small-unpriced", "medium", "large-wide"]
    for skipped, expected in enumerate(order):
        assert pick(ModelSpec(Grade.SMALL), without(*order[:skipped])) == expected


def test_micro_falls_up_to_small_and_never_down() -> None:
    assert pick(ModelSpec(Grade.MICRO)) == "small-pinned"
    assert pick(ModelSpec(Grade.MEDIUM)) == "medium"
    with pytest.raises(ModelResolutionError, match="no chat model for MEDIUM can be called"):
        pick(ModelSpec(Grade.MEDIUM), without("medium", "large-wide"))
    with pytest.raises(ModelResolutionError, match="has no chat model for XL"):
        pick(ModelSpec(Grade.XL))


def test_the_ceiling_is_the_strongest_that_can_be_called() -> None:
    assert pick(ModelSpec(Grade.CEILING)) == "large-wide"
    assert pick(ModelSpec(Grade.CEILING), without("large-wide")) == "medium"
    pinned = Catalog.of(CATALOG.entries.values(), pins={Grade.CEILING: "medium"})
    assert pick(ModelSpec(Grade.CEILING), catalog=pinned) == "medium"


def test_an_entry_for_its_name_alone_serves_no_grade() -> None:
    """A simulated model must not stand in for a real one whose key is missing."""
    others = [name for name in CATALOG.entries if name != "small-simulated"]
    with pytest.raises(ModelResolutionError):
        pick(ModelSpec(Grade.SMALL), without(*others))
    assert pick(ModelSpec("small-simulated")) == "small-simulated"
    pinned = Catalog.of(CATALOG.entries.values(), pins={Grade.SMALL: "small-simulated"})
    assert pick(ModelSpec(Grade.SMALL), catalog=pinned) == "small-simulated"


def test_an_exact_id_is_served_by_it_alone() -> None:
    assert pick(ModelSpec("small-dear")) == "small-dear"
    with pytest.raises(ModelResolutionError, match="small-dear: its key is not set"):
        pick(ModelSpec("small-dear"), without("small-dear"))
    with pytest.raises(ModelResolutionError, match="status is disabled"):
        pick(ModelSpec("small-closed"))


def test_a_deprecated_entry_serves_its_id_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert pick(ModelSpec("small-old")) == "small-old"
    assert [record.message for record in caplog.records] == ["model small-old is deprecated"]


def test_an_exact_id_falls_back_only_where_its_entry_says_so() -> None:
    catalog = Catalog.of([model("a", fallbacks=["b", "c"]), model("b"), model("c")])
    assert pick(ModelSpec("a"), catalog=catalog) == "a"
    assert pick(ModelSpec("a"), without("a"), catalog=catalog) == "b"
    assert pick(ModelSpec("a", avoid=frozenset({"a", "b"})), catalog=catalog) == "c"


def passed_over(*names: str) -> Callable[[ModelEntry], str | None]:
    return lambda entry: PassedOver("it fails") if entry.id in names else None


def test_the_fallbacks_of_one_passed_over_come_next_and_theirs_after_them() -> None:
    catalog = Catalog.of([model("a", fallbacks=["b", "d"]), model("b", fallbacks=["c"]), model("c"), model("d")])
    assert pick(ModelSpec("a"), passed_over("a"), catalog=catalog) == "b"
    assert pick(ModelSpec("a"), passed_over("a", "b"), catalog=catalog) == "c"
    assert pick(ModelSpec("a"), passed_over("a", "b", "c"), catalog=catalog) == "d"


def test_routing_beats_a_grade_and_a_missing_key_does_not() -> None:
    entries = [model("a", price="1", fallbacks=["big"]), model("b", price="2"), model("big", Grade.XL, price="9")]
    catalog = Catalog.of(entries)
    assert pick(ModelSpec(Grade.SMALL), passed_over("a"), catalog=catalog) == "big"
    assert pick(ModelSpec(Grade.SMALL), passed_over("a", "big"), catalog=catalog) == "b"
    assert pick(ModelSpec(Grade.SMALL), without("a"), catalog=catalog) == "b"


def test_a_chain_that_comes_back_to_itself_through_an_alias_tries_each_model_once() -> None:
    seen: list[str] = []

    def fails(entry: ModelEntry) -> str | None:
        seen.append(entry.id)
        return PassedOver("it fails")

    a, b = model("a", fallbacks=["b"]), model("b", fallbacks=["again", "a"])
    again = model("again", wire_model_id="a", fallbacks=["b", "other"])
    other_key = model("other", wire_model_id="a", credential="second-key")
    catalog = Catalog.of([a, b, again, other_key])
    with pytest.raises(ModelResolutionError, match="it fails"):
        pick(ModelSpec("a"), fails, catalog=catalog)
    assert seen == ["a", "b", "other"]  # `again` is `a` under another name: only its own backups are news
    seen.clear()
    with pytest.raises(ModelResolutionError):
        pick(ModelSpec("b"), fails, catalog=catalog)
    assert seen == ["b", "again", "other"]


def test_what_is_no_longer_listed_is_passed_over_though_pinned_and_served_by_its_name() -> None:
    gone = model("gone", status=Status.UNLISTED)
    catalog = Catalog.of([gone, model("there", price="9")], pins={Grade.SMALL: ("gone", "there")})
    assert pick(ModelSpec(Grade.SMALL, max_output_tokens=1), catalog=catalog) == "there"
    assert pick(ModelSpec("gone", max_output_tokens=1), catalog=catalog) == "gone"


def test_an_unknown_id_names_what_is_near() -> None:
    with pytest.raises(ModelResolutionError, match=r"no model 'small-deer' \(did you mean small-dear\?\)"):
        pick(ModelSpec("small-deer"))


def test_what_is_to_be_avoided_is_not_picked() -> None:
    assert pick(ModelSpec(Grade.SMALL, avoid=frozenset({"small-pinned"}))) == "small-cheap"


def test_what_is_sent_must_be_taken() -> None:
    assert pick(ModelSpec(Grade.SMALL, sends=frozenset({Input.IMAGES}))) == "large-wide"
    assert pick(ModelSpec(Grade.SMALL, sends=frozenset({Input.TEXT}))) == "small-pinned"
    with pytest.raises(ModelResolutionError, match="takes no document"):
        pick(ModelSpec(Grade.SMALL, sends=frozenset({Input.DOCUMENTS})))


def test_a_window_too_small_is_passed_over_and_named_when_nothing_else_is_left() -> None:
    assert pick(ModelSpec(Grade.LARGE), input_tokens=999) == "large-wide"
    with pytest.raises(ContextWindowExceededError, match="the largest is 1,000") as caught:
        pick(ModelSpec(Grade.LARGE), input_tokens=1_000)
    assert caught.value.sent is False


def test_without_a_model_the_kinds_pin_serves() -> None:
    assert pick(ModelSpec(kind=Kind.EMBEDDINGS)) == "vectors-2"
    assert pick(ModelSpec(kind=Kind.EMBEDDINGS), without("vectors-2")) == "vectors"
    with pytest.raises(ModelResolutionError, match="has no decision model"):
        pick(ModelSpec(kind=Kind.DECISION))


def test_an_id_of_another_kind_is_refused() -> None:
    with pytest.raises(ModelResolutionError, match="it is a model for chat, and embeddings is asked"):
        pick(ModelSpec("medium", kind=Kind.EMBEDDINGS))


def test_the_last_error_names_the_credentials_that_would_help() -> None:
    unset = "credential anthropic-api-key is not set: looked at environment variable ANTHROPIC_API_KEY"
    with pytest.raises(ModelResolutionError, match="ANTHROPIC_API_KEY") as caught:
        pick(ModelSpec(Grade.LARGE), lambda entry: unset)
    assert caught.value.skipped == {"large-wide": unset}
    assert len(str(caught.value).splitlines()) == 1


def test_a_skip_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    situation = Situation(catalog=CATALOG, callable=without("small-pinned"))
    spec = ModelSpec(Grade.SMALL)
    with caplog.at_level(logging.WARNING, "interlock.catalog"):
        for _ in range(3):
            PICKER.pick(Seat(kind=Kind.CHAT, spec=spec), situation)
    assert [record.message for record in caplog.records] == ["model small-pinned is skipped: its key is not set"]


def test_a_pickers_answer_is_bound_with_its_numbers() -> None:
    spec = ModelSpec(Grade.SMALL, max_output_tokens=200)
    binding = bind(spec, catalog=CATALOG, picker=PICKER, situation=Situation(catalog=CATALOG), input_tokens=40, calls=3)
    assert (binding.entry.id, binding.input_tokens, binding.output_tokens, binding.calls) == (
        "small-pinned",
        40,
        200,
        3,
    )
    vectors = ModelSpec(kind=Kind.EMBEDDINGS)
    binding = bind(vectors, catalog=CATALOG, picker=PICKER, situation=Situation(catalog=CATALOG), input_tokens=40)
    assert (binding.entry.id, binding.input_tokens, binding.output_tokens) == ("vectors-2", 40, 0)


def test_a_picker_of_ones_own_is_asked_instead() -> None:
    class Dearest:
        def pick(self, seat: Seat, situation: Situation) -> ModelEntry:
            return situation.catalog.entry("large-wide")

    situation = Situation(catalog=CATALOG)
    assert bind(ModelSpec(Grade.SMALL), catalog=CATALOG, picker=Dearest(), situation=situation).entry.id == "large-wide"


@pytest.mark.parametrize("picked", [None, "large-wide"])
def test_a_picker_that_gives_no_entry_is_named(picked: Any) -> None:
    class Careless:
        def pick(self, seat: Seat, situation: Situation) -> Any:
            return picked

    with pytest.raises(ModelResolutionError, match=r"Careless\.pick gave (NoneType|str)"):
        bind(ModelSpec(Grade.SMALL), catalog=CATALOG, picker=Careless(), situation=Situation(catalog=CATALOG))


@given(
    grade=st.sampled_from(Grade),
    unable=st.sets(st.sampled_from(sorted(CATALOG.entries))),
    avoid=st.frozensets(st.sampled_from(sorted(CATALOG.entries))),
)
def test_what_is_picked_can_be_called_and_is_strong_enough(
    grade: Grade, unable: set[str], avoid: frozenset[str]
) -> None:
    spec = ModelSpec(grade, avoid=avoid)
    able = [
        entry
        for entry in CATALOG.entries.values()
        if entry.kind is Kind.CHAT
        and entry.status is Status.OPEN
        and not entry.named_only
        and entry.id not in unable | avoid
        and entry.grade is not None
        and (grade is Grade.CEILING or grade <= entry.grade)
    ]
    if not able:
        with pytest.raises(ModelResolutionError):
            pick(spec, without(*unable))
        return
    chosen = CATALOG.entry(pick(spec, without(*unable)))
    assert chosen in able
    strongest_or_lowest = max if grade is Grade.CEILING else min
    assert chosen.grade is strongest_or_lowest((entry.grade for entry in able), key=lambda each: each.value)


def test_many_skips_are_one_record_grouped_by_reason(caplog: pytest.LogCaptureFixture) -> None:
    others = ("small-pinned", "small-cheap", "small-dear", "small-unpriced")
    situation = Situation(catalog=CATALOG, callable=without(*others))
    seat = Seat(kind=Kind.CHAT, spec=ModelSpec(Grade.SMALL))
    with caplog.at_level(logging.INFO, "interlock.catalog"):
        for _ in range(2):
            assert PICKER.pick(seat, situation).id == "medium"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message == "4 models are skipped: small-pinned, small-cheap and 2 more: its key is not set"


def test_what_would_help_is_said_in_one_sentence_where_the_reasons_are_many() -> None:
    reasons = iter(
        [Unable("a is not set", "set A"), Unable("b is not set", "set B"), Unable("no provider c"), *"defgh"]
    )
    with pytest.raises(ModelResolutionError) as caught:
        pick(ModelSpec(Grade.SMALL), lambda entry: next(reasons))
    assert "no chat model for SMALL can be called: set A, or set B, or name another catalog" in str(caught.value)
