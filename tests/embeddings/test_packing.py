"""Every request stays under every cap, keeps the order and loses nothing."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interlock.catalog.cut import beginning
from interlock.catalog.tokens import Estimate, estimate_text
from interlock.clients.registry import provider_class
from interlock.embeddings.packing import (
    BlankTextError,
    Caps,
    TextTooLongError,
    pack,
    plan_requests,
    require_possible,
)
from interlock.errors import ContextWindowExceededError, InvalidRequestError

CAP = st.none() | st.integers(10, 60)
CAPS = st.builds(Caps, items=st.none() | st.integers(1, 8), tokens=CAP, bytes=CAP, item_tokens=CAP)
SIZE = st.integers(1, 12) | st.integers(-1, 70)
SIZES = st.lists(st.tuples(SIZE.map(abs), SIZE), max_size=60)


@given(SIZES, CAPS)
def test_b37_within_all_caps_in_order_and_nothing_lost(sizes: list[tuple[int, int]], caps: Caps) -> None:
    tokens, byte_sizes = [size[0] for size in sizes], [size[1] for size in sizes]
    packing = pack(tokens, byte_sizes, caps)
    placed = [index for batch in packing.batches for index in batch.indexes]
    assert placed == sorted(placed)
    assert sorted([*placed, *(item.index for item in packing.impossible)]) == list(range(len(sizes)))
    for batch in packing.batches:
        assert batch.indexes
        assert batch.tokens == batch.raw_tokens == sum(tokens[index] for index in batch.indexes)
        assert caps.items is None or len(batch.indexes) <= caps.items
        assert caps.tokens is None or batch.tokens <= caps.tokens
        assert caps.bytes is None or sum(byte_sizes[index] for index in batch.indexes) <= caps.bytes
        assert all(caps.item_tokens is None or tokens[index] <= caps.item_tokens for index in batch.indexes)
    assert packing.largest_tokens == max((batch.tokens for batch in packing.batches), default=0)


@pytest.mark.parametrize("caps", [Caps(items=2), Caps(tokens=10), Caps(bytes=10)])
def test_a_request_is_filled_to_its_cap_and_no_further(caps: Caps) -> None:
    assert [batch.indexes for batch in pack([5, 5, 1], [5, 5, 1], caps).batches] == [(0, 1), (2,)]


#: Texts of so many tokens, bytes and characters, and how many stand in each request.
OF_THE_WIRES = (
    ("openai-embeddings", "m", [(1, 4, 4)] * 2_049, [2_048, 1]),
    ("openai-embeddings", "m", [(1_000, 4_000, 4_000)] * 301, [300, 1]),
    ("openai-compatible-embeddings", "m", [(1_000, 4_000, 4_000)] * 2_049, [2_049]),
    ("bedrock-titan-embeddings", "m", [(1, 4, 4)] * 2, [1, 1]),
    ("bedrock-titan-embeddings", "m", [(9, 50_000, 50_000), (9, 50_001, 50_001)], [1]),
    ("bedrock-cohere-embeddings", "cohere.embed-v4:0", [(1, 4, 4)] * 97, [96, 1]),
    ("bedrock-cohere-embeddings", "cohere.embed-v4:0", [(1, 10_000_000, 4)] * 3, [2, 1]),
    ("bedrock-cohere-embeddings", "cohere.embed-english-v3", [(1, 2_048, 2_048), (1, 2_049, 2_049)], [1]),
    ("gemini-embeddings", "m", [(1, 4, 4)] * 101, [100, 1]),
    ("wordllama", "m", [(1_000, 4_000, 4_000)] * 9_999, [9_999]),
)


@pytest.mark.parametrize(("key", "model", "texts", "requests"), OF_THE_WIRES)
def test_a_wires_own_limits_hold_where_the_entry_says_nothing(
    make_entry: Any, key: str, model: str, texts: list[Any], requests: list[int]
) -> None:
    tokens, sizes, lengths = zip(*texts, strict=True)
    packing = pack(tokens, sizes, provider_class(key).caps(make_entry(key, wire_model_id=model)), lengths)
    assert [len(batch.indexes) for batch in packing.batches] == requests
    assert [item.index for item in packing.impossible] == list(range(sum(requests), len(texts)))


@given(SIZES, CAPS)
def test_only_what_fits_no_request_is_set_apart(sizes: list[tuple[int, int]], caps: Caps) -> None:
    for item in pack([size[0] for size in sizes], [size[1] for size in sizes], caps).impossible:
        tokens, size = sizes[item.index]
        alone = pack([tokens], [size], caps)
        assert not alone.batches
        assert item.blank == (size <= 0)


@given(SIZES, CAPS)
def test_no_two_neighbours_would_have_fitted_together(sizes: list[tuple[int, int]], caps: Caps) -> None:
    packing = pack([size[0] for size in sizes], [size[1] for size in sizes], caps)
    for first, second in zip(packing.batches, packing.batches[1:], strict=False):
        joined = [*first.indexes, second.indexes[0]]
        again = pack([sizes[index][0] for index in joined], [sizes[index][1] for index in joined], caps)
        assert again.calls == 2


def planned(entry: Any, texts: list[str], count: Any = len, **caps: Any) -> Any:
    return plan_requests(texts, Caps.of(entry, **caps), [count(text) for text in texts])


def test_b37_the_caps_of_a_hosted_model(make_entry: Any) -> None:
    entry = make_entry(max_batch_items=2048, max_batch_tokens=300_000, context_window=8192, dimensions=8)

    def plan(counts: list[int]) -> Any:
        return planned(entry, [str(count) for count in counts], int)

    assert [len(batch.indexes) for batch in plan([3] * 2100).batches] == [2048, 52]
    assert [len(batch.indexes) for batch in plan([5000] * 100).batches] == [60, 40]
    long = plan([10, 9000, 10])
    assert [item.index for item in long.impossible] == [1]
    assert [batch.indexes for batch in long.batches] == [(0, 2)]


def test_b37_the_impossible_text_is_named_before_anything_is_sent(make_entry: Any) -> None:
    entry = make_entry(context_window=100)
    packing = planned(entry, ["short", "long " * 500, "short"], estimate_text)
    with pytest.raises(TextTooLongError, match=r"text 1 has about .* where 100 are allowed") as caught:
        require_possible(packing, range(3), model=entry.id, texts=3)
    assert caught.value.indexes == (1,)
    assert not caught.value.sent
    assert isinstance(caught.value, ContextWindowExceededError)


@pytest.mark.parametrize(("text", "why"), [("", "text 1 is empty"), ("\ud800", "text 1 holds a lone surrogate")])
def test_b37_a_blank_text_is_named(make_entry: Any, text: str, why: str) -> None:
    packing = planned(make_entry(), ["a", text])
    with pytest.raises(BlankTextError, match=why) as caught:
        require_possible(packing, range(2), model="m", texts=2)
    assert isinstance(caught.value, InvalidRequestError)
    assert not caught.value.sent


def test_bytes_count_as_utf8(make_entry: Any) -> None:
    packing = planned(make_entry(), ["ü" * 6, "ü" * 6], max_bytes=20)
    assert packing.calls == 2
    assert planned(make_entry(), ["u" * 6, "u" * 6], max_bytes=20).calls == 1


def test_many_impossible_texts_are_counted_and_the_first_are_named(make_entry: Any) -> None:
    packing = planned(make_entry(context_window=1), ["xx"] * 9)
    with pytest.raises(TextTooLongError, match=r"9 of 9 texts: text 0 .* and 4 more") as caught:
        require_possible(packing, range(9), model="m", texts=9)
    assert caught.value.indexes == tuple(range(9))


@pytest.mark.parametrize("error_class", [BlankTextError, TextTooLongError])
def test_b60_the_errors_survive_pickle(error_class: Any) -> None:
    error = pickle.loads(pickle.dumps(error_class("text 3 is not", indexes=(3, 5), model="m")))
    assert (str(error), error.indexes, error.model, error.sent) == ("text 3 is not", (3, 5), "m", False)


def test_a_batch_remembers_the_estimate_before_its_correction() -> None:
    packing = pack([Estimate.of(10, 2.0), Estimate.of(5, 2.0)], [1, 1], Caps())
    assert (packing.tokens, packing.batches[0].raw_tokens) == (30, 15)


@given(st.text(max_size=300), st.integers(1, 40))
def test_a_cut_is_the_longest_beginning_that_fits(text: str, longest: int) -> None:
    kept = beginning(text, longest, estimate_text)
    assert text.startswith(kept)
    assert estimate_text(kept) <= longest
    if kept != text:
        assert estimate_text(text[: len(kept) + 1]) > longest


def test_cutting_a_very_long_text_reads_only_its_beginning() -> None:
    read: list[int] = []

    def count(text: str) -> int:
        read.append(len(text))
        return len(text)

    assert len(beginning("x" * 10_000_000, 1000, count)) == 1000
    assert max(read) <= 4000
