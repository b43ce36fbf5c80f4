"""The one formula for the reservation and the wire: min(declared + thinking, ceiling, window - input)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from interlock.catalog import (
    Catalog,
    DefaultPicker,
    Depth,
    Grade,
    Limits,
    ModelEntry,
    ModelSpec,
    OutputSize,
    Situation,
    bind,
    output_limit,
)
from interlock.errors import ContextWindowExceededError, InvalidRequestError, UpstreamError


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"declared": 200}, (200, 0)),
        ({}, (8_192, 0)),
        ({"output": OutputSize.VERDICT}, (1_024, 0)),
        ({"output": OutputSize.COMPACT}, (4_096, 0)),
        ({"output": OutputSize.STANDARD}, (16_384, 0)),
        ({"output": OutputSize.EXTENDED}, (32_768, 0)),
        ({"output": OutputSize.MAX}, (64_000, 0)),
        ({"declared": 1_000_000}, (64_000, 0)),
        ({"declared": 5_000, "input_tokens": 199_000}, (1_000, 0)),
        ({"declared": 200, "depth": Depth.QUICK}, (4_200, 4_000)),
        ({"declared": 200, "depth": Depth.STANDARD}, (8_200, 8_000)),
        ({"declared": 200, "depth": Depth.THOROUGH}, (16_200, 16_000)),
        # At the ceiling the answer keeps what thinking does not need.
        ({"output": OutputSize.MAX, "depth": Depth.THOROUGH}, (64_000, 16_000)),
        ({"declared": 60_000, "depth": Depth.THOROUGH}, (64_000, 16_000)),
        # Little window is left: half of it for thinking, and no thinking below what providers take.
        ({"declared": 4_000, "depth": Depth.THOROUGH, "input_tokens": 190_000}, (10_000, 6_000)),
        ({"declared": 400, "depth": Depth.QUICK, "input_tokens": 199_400}, (400, 0)),
    ],
)
def test_the_formula(make_entry, asked, expected: tuple[int, int]) -> None:
    entry = make_entry(context_window=200_000, max_output_tokens=64_000, thinking={"mode": "budget"})
    assert output_limit(entry, **asked) == expected


def test_a_model_that_does_not_think_gets_no_budget(make_entry) -> None:
    entry = make_entry(context_window=200_000, max_output_tokens=64_000)
    assert output_limit(entry, declared=200, depth=Depth.THOROUGH) == (200, 0)


def test_a_small_ceiling_still_gives_the_least_budget(make_entry) -> None:
    entry = make_entry(max_output_tokens=8_192, thinking={"mode": "budget"})
    assert output_limit(entry, declared=200, depth=Depth.QUICK) == (1_224, 1_024)


def test_an_entry_overrides_a_depths_budget(make_entry) -> None:
    thinking = {"mode": "adaptive", "budgets": {Depth.IMMEDIATE: 2_048, Depth.THOROUGH: 0}}
    entry = make_entry(max_output_tokens=64_000, thinking=thinking)
    assert output_limit(entry, declared=200) == (2_248, 2_048)
    assert output_limit(entry, declared=200, depth=Depth.THOROUGH) == (200, 0)


def test_no_room_in_the_window_is_said_before_anything_is_sent(make_entry) -> None:
    entry = make_entry(context_window=1_000)
    with pytest.raises(ContextWindowExceededError) as caught:
        output_limit(entry, declared=10, input_tokens=1_000)
    assert (caught.value.sent, caught.value.model, caught.value.provider) == (False, "m", "p")
    assert "1,000 input tokens" in str(caught.value)


def test_max_of_a_model_without_a_ceiling_is_the_window_or_an_error(make_entry) -> None:
    assert output_limit(make_entry(context_window=1_000), output=OutputSize.MAX, input_tokens=300) == (700, 0)
    with pytest.raises(InvalidRequestError) as caught:
        output_limit(make_entry(), output=OutputSize.MAX)
    assert caught.value.sent is False


@given(
    declared=st.none() | st.integers(1, 2**40),
    size=st.none() | st.sampled_from(OutputSize),
    depth=st.sampled_from(Depth),
    input_tokens=st.integers(0, 2**21),
    window=st.none() | st.integers(1, 2**21),
    ceiling=st.none() | st.integers(1, 2**20),
    mode=st.sampled_from(["none", "budget", "adaptive"]),
    budgets=st.dictionaries(st.sampled_from(Depth), st.integers(-5, 2**16), max_size=4),
)
def test_the_limit_fits_whatever_is_asked(declared, size, depth, input_tokens, window, ceiling, mode, budgets) -> None:
    if window is not None and ceiling is not None:
        ceiling = min(ceiling, window)
    entry = ModelEntry(
        id="m",
        grade=Grade.SMALL,
        provider="p",
        wire_model_id="w",
        context_window=window,
        max_output_tokens=ceiling,
        thinking={"mode": mode, "budgets": budgets},
    )
    try:
        total, thinking = output_limit(entry, declared=declared, output=size, depth=depth, input_tokens=input_tokens)
    except ContextWindowExceededError:
        assert window is not None
        assert window - input_tokens < 1
        return
    except InvalidRequestError:
        assert (window, ceiling, size) == (None, None, OutputSize.MAX)
        return
    assert total >= 1
    assert 0 <= thinking < total
    assert ceiling is None or total <= ceiling
    assert window is None or total + input_tokens <= window
    if thinking == 0 and declared is not None:
        assert total <= declared


def bound(entry: ModelEntry, spec: ModelSpec, input_tokens: int, **pools: Limits):
    catalog = Catalog.of([entry], pools=pools)
    situation = Situation(catalog=catalog)
    return bind(spec, catalog=catalog, picker=DefaultPicker(), situation=situation, input_tokens=input_tokens)


def test_b53_without_a_cap_the_reservation_still_fits_an_idle_small_bucket(make_entry) -> None:
    """tpm=100, no cap, a 5-token prompt: neither 0 nor a floor above the limit, but what the bucket can grant."""
    binding = bound(make_entry(limits=Limits(tpm=100)), ModelSpec("m"), 5)
    assert (binding.input_tokens, binding.output_tokens) == (5, 95)


@pytest.mark.parametrize(
    ("limits", "output", "expected"),
    [
        (Limits(tpm=100), "expected", 8_192),  # output is not reserved: nothing to shrink
        (Limits(tpm=1_000_000), "limit", 8_192),
        (Limits(), "limit", 8_192),
        (Limits(tpm=6_000, burst_s=10), "limit", 995),  # the bucket's capacity, not the minute's rate
        (Limits(input_tpm=100, output_tpm=500), "limit", 500),  # separate limits: only output counts against output
        (Limits(tpd=2_000), "limit", 1_995),
        (Limits(tpm=4), "limit", 1),
    ],
)
def test_b53_the_default_cap_is_held_against_the_right_limit(make_entry, limits, output, expected: int) -> None:
    entry = make_entry(limits=limits, accounting={"output": output})
    assert bound(entry, ModelSpec("m"), 5).output_tokens == expected


def test_b53_the_default_cap_looks_at_a_shared_pool(make_entry) -> None:
    entry = make_entry(limits=Limits(pool="tight"))
    assert bound(entry, ModelSpec("m"), 5, tight=Limits(tpm=100)).output_tokens == 95


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (ModelSpec("m", max_output_tokens=738), (738, 0)),  # the cap that is sent is the cap that is reserved
        (ModelSpec("m", max_output_tokens=100_000), (64_000, 0)),  # clamped to the model's ceiling
        (ModelSpec("m", max_output_tokens=738, depth=Depth.QUICK), (4_738, 4_000)),  # thinking is reserved too
        (ModelSpec("m", output=OutputSize.VERDICT), (1_024, 0)),
    ],
)
def test_b53_a_declared_cap_is_reserved_as_it_is_sent(make_entry, spec: ModelSpec, expected: tuple[int, int]) -> None:
    entry = make_entry(max_output_tokens=64_000, thinking={"mode": "budget"}, limits=Limits(tpm=100))
    binding = bound(entry, spec, 5)
    assert (binding.output_tokens, binding.thinking_tokens) == expected


def test_every_limit_error_is_an_upstream_error_with_a_code() -> None:
    assert issubclass(ContextWindowExceededError, UpstreamError)
    assert ContextWindowExceededError.code == "context_window_exceeded"
