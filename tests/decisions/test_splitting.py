"""Questions over requests: all of them, in their order, within what a request takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from interlock.catalog.entry import ProviderSettings
from interlock.clients.registry import provider_class
from interlock.decisions import Choice, DecisionRequest, Noul
from interlock.decisions.splitting import PlannedCalls, split

SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=12)


def asked(sizes: list[int]) -> DecisionRequest:
    return DecisionRequest("state " * 10, {f"q{n}": Noul.of("word " * size) for n, size in enumerate(sizes)})


@given(SIZES, st.integers(1, 6) | st.none(), st.integers(20, 200) | st.none())
def test_every_question_is_asked_once_in_order_and_within_the_limits(
    sizes: list[int], most_questions: int | None, most_tokens: int | None
) -> None:
    request = asked(sizes)
    parts = split(request, most_questions=most_questions, most_tokens=most_tokens, count=lambda text: len(text.split()))
    assert [name for part in parts for name in part.request.questions] == list(request.questions)
    for part in parts:
        assert part.request.state == request.state
        assert part.input_tokens == len(part.request.text.split())
        assert most_questions is None or len(part.request.questions) <= most_questions
        assert most_tokens is None or part.input_tokens <= most_tokens or len(part.request.questions) == 1
    calls = PlannedCalls.of(parts)
    assert (calls.calls, calls.input_tokens) == (len(parts), max(part.input_tokens for part in parts))


@given(SIZES)
def test_what_fits_is_one_request_and_the_same_one(sizes: list[int]) -> None:
    request = asked(sizes)
    (part,) = split(request, most_questions=None, most_tokens=None, count=len)
    assert part.request is request


def test_a_part_has_the_state_that_was_checked() -> None:
    request = DecisionRequest({"a": [1]}, {"x": Noul.of("?"), "y": Choice.of("?", "one", "two")})
    part: Any = request.only(["y"])
    assert part.state is request.state
    assert part == DecisionRequest({"a": [1]}, {"y": Choice.of("?", "one", "two")})


@pytest.mark.parametrize(
    ("key", "most", "sizes"),
    [
        ("openai-decision", None, [400, 1]),
        ("openai-decision", 150, [150, 150, 101]),
        ("systemone-decision", None, [401]),
        ("openrouter-decision", 400, [400, 1]),
        ("sparrow", None, [401]),
    ],
)
def test_a_request_has_as_many_questions_as_its_provider_or_its_entry_says(
    key: str, most: int | None, sizes: list[int], make_entry: Any
) -> None:
    entry = make_entry(key, max_batch_items=most)
    parts = provider_class(key).plan(entry, ProviderSettings(), asked([1] * 401), len)
    assert [len(part.request.questions) for part in parts] == sizes
