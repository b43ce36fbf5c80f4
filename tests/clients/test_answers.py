"""An answer read piece by piece: tool calls put together, usage merged, gates passed. Pure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interlock.catalog.usage import Usage
from interlock.clients.answer import Answer, Draft, parse_arguments, with_ids_of_its_own
from interlock.clients.conversation import Conversation, TextBlock, ThinkingBlock, ToolUseBlock
from interlock.clients.gates import Judged, judge
from interlock.clients.providers.openai_reading import ToolCalls, read_choice, read_usage
from interlock.clients.response import StopReason
from interlock.errors import EmptyResponseError, UpstreamError

A, B = '{"place": "Oslo"}', '{"place": "Rome"}'


def fragment(index: Any, call_id: Any = None, name: Any = None, arguments: Any = "") -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def assembled(*chunks: list[dict[str, Any]]) -> Draft:
    draft = Draft()
    for chunk in chunks:
        read_choice({"index": 0, "delta": {"tool_calls": chunk}}, draft)
    read_choice({"index": 0, "delta": {}, "finish_reason": "tool_calls"}, draft)
    return draft


@pytest.mark.parametrize(
    "chunks",
    [
        # interleaved by index, ids on the first fragment only
        [
            [fragment(0, "a", "look", A[:5])],
            [fragment(1, "b", "look", B[:7])],
            [fragment(0, arguments=A[5:])],
            [fragment(1, arguments=B[7:])],
        ],
        # one index for all, a new id each
        [[fragment(0, "a", "look", A)], [fragment(0, "b", "look", B)]],
        [[fragment(0, "a", "look", A), fragment(0, "b", "look", B)]],
        # two entries with one index in the first chunk, the rest by id
        [
            [fragment(0, "a", "look"), fragment(0, "b", "look")],
            [fragment(0, "a", None, A)],
            [fragment(0, "b", None, B)],
        ],
        # no ids at all, one index, whole arguments
        [[fragment(0, None, "look", A)], [fragment(0, None, "look", B)]],
        # index drifts, no id: fragments follow the last call
        [
            [fragment(0, "a", "look", A[:5])],
            [fragment(1, None, None, A[5:])],
            [fragment(2, "b", "look", B[:5])],
            [fragment(3, None, None, B[5:])],
        ],
        # the name on every fragment
        [
            [fragment(0, "a", "look", A[:4])],
            [fragment(0, "a", "look", A[4:])],
            [fragment(1, "b", "look", B[:4])],
            [fragment(1, "b", "look", B[4:])],
        ],
        [[fragment(0, None, "look", A[:4])], [fragment(0, None, "look", A[4:])], [fragment(1, None, "look", B)]],
        # index null or missing
        [[fragment(None, "a", "look", A[:4])], [fragment(None, "a", None, A[4:])], [fragment(None, "b", "look", B)]],
        [[fragment(None, None, "look", A[:4])], [fragment(None, None, None, A[4:])], [fragment(None, None, "look", B)]],
        # an id that changes with every fragment and no name
        [[fragment(0, "a", "look", A[:4])], [fragment(0, "x", None, A[4:])], [fragment(1, "b", "look", B)]],
        # one id for both
        [[fragment(0, "a", "look", A), fragment(1, "a", "look", B)]],
        # arguments already parsed
        [[fragment(0, "a", "look", json.loads(A)), fragment(1, "b", "look", json.loads(B))]],
    ],
    ids=range(13),
)
def test_b39_tool_delta_assembly(chunks):
    answer = assembled(*chunks).answer()
    assert answer.bad_tool_calls == ()
    assert [dict(call.input)["place"] for call in answer.blocks] == ["Oslo", "Rome"]  # type: ignore[union-attr]
    assert [call.name for call in answer.blocks] == ["look", "look"]  # type: ignore[union-attr]
    assert len({call.id for call in answer.blocks}) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("chunks", [
    [[fragment(0, None, None, A)]], [[fragment(None, None, None, A[:4])], [fragment(None, None, None, A[4:])]],
    [[fragment(3, "a", None, A)]],
], ids=range(3))  # fmt: skip
def test_b39_a_fragment_that_belongs_to_no_call_is_malformed_and_not_lost(chunks):
    answer = assembled(*chunks).answer()
    assert [bad.problem for bad in answer.bad_tool_calls] == ["the call has no name"]


names = st.sampled_from([None, "", "look", "find"])
odd = st.none() | st.booleans() | st.integers(-2, 3) | st.text(max_size=4) | st.lists(st.integers(), max_size=2)
fragments = st.builds(fragment, odd, odd, names, odd | st.sampled_from(["{", "}", "{}", '{"a":', "1}"]))


@given(st.lists(st.lists(fragments, max_size=3), max_size=6))
def test_b39_any_fragments_make_an_answer(chunks):
    answer = assembled(*chunks).answer()
    given_text = [part["function"]["arguments"] for chunk in chunks for part in chunk]
    if not any(isinstance(text, str) and text for text in given_text):
        assert all(dict(call.input) == {} for call in answer.blocks)  # type: ignore[union-attr]
    assert len({call.id for call in answer.blocks}) <= len(answer.blocks)  # type: ignore[union-attr]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["look", "find"]), st.dictionaries(st.text(max_size=4), st.text(max_size=6), max_size=3)
        ),
        min_size=1,
        max_size=4,
    ),
    st.randoms(use_true_random=False),
    st.integers(1, 7),
)
def test_b39_calls_cut_anywhere_and_interleaved_are_put_together(calls, random, size):
    """Each call's fragments in order, the calls' fragments in any order: as the wire allows."""
    queues = []
    for index, (name, arguments) in enumerate(calls):
        text = json.dumps(arguments)
        cut = [text[at : at + size] for at in range(0, len(text), size)]
        queues.append([fragment(index, f"id{index}", name, ""), *(fragment(index, arguments=part) for part in cut)])
    first = [queue.pop(0) for queue in queues]
    chunks = [[part] for part in first]
    while any(queues):
        queue = random.choice([queue for queue in queues if queue])
        chunks.append([queue.pop(0)])
    answer = assembled(*chunks).answer()
    assert [(call.name, dict(call.input)) for call in answer.blocks] == calls  # type: ignore[union-attr]


def test_calls_are_told_apart_by_id():
    calls = ToolCalls()
    assert calls.key_of(0, "a", "look", "") == calls.key_of(5, "a", None, "{}")
    assert calls.key_of(0, "b", "look", "") != calls.key_of(0, "a", None, "")


@pytest.mark.parametrize(
    ("raw", "arguments", "wrong"),
    [
        ("", {}, False),
        (None, {}, False),
        (" ", {}, False),
        ("{}", {}, False),
        ('{"a": 1}', {"a": 1}, False),
        ({"a": 1}, {"a": 1}, False),
        ("{}{}", {}, True),
        ("null", {}, True),
        ("[]", {}, True),
        ("7", {}, True),
        ('{"a"', {}, True),
        ([], {}, True),
        ("[" * 99_999, {}, True),
        ('{"a": "\\ud800"}', {}, True),
        ('{"a": "\\ud83d\\ude42"}', {"a": "🙂"}, False),
        # What could not go back to any provider, whether it came as text or parsed.
        ('{"a": NaN}', {}, True),
        ('{"a": 1e999}', {}, True),
        ('{"a": 1, "a": 2}', {}, True),
        ({"a": [float("nan")]}, {}, True),
        ({"a": float("-inf")}, {}, True),
        ({"a": {"b": "\ud800"}}, {}, True),
    ],
)
def test_b44_arguments(raw, arguments, wrong):
    found, problem = parse_arguments(raw)
    assert found == arguments
    assert bool(problem) is wrong


@given(st.text(max_size=30) | st.none() | st.integers() | st.lists(st.integers()) | st.binary(max_size=3))
def test_b44_arguments_never_raise(raw):
    found, problem = parse_arguments(raw)
    assert isinstance(found, dict)
    assert isinstance(problem, str)


def test_a_reason_that_was_given_holds_against_one_that_is_not():
    draft = Draft()
    draft.stop(StopReason.MAX_TOKENS)
    draft.stop(None)
    assert draft.stop_reason is StopReason.MAX_TOKENS


def test_usage_keeps_the_last_value_of_each_field():
    draft = Draft()
    draft.count(input_tokens=25, output_tokens=1, cache_read_tokens=1000)
    draft.count(output_tokens=7)
    draft.count(input_tokens=None, output_tokens=15, cache_read_tokens=None)
    draft.count(input_tokens=10**30, output_tokens=float("inf"), cache_read_tokens=float("nan"))
    draft.count(output_tokens="many", input_tokens=True, cache_write_tokens=-3, reasoning_tokens=1.5)
    assert draft.usage == Usage(input_tokens=25, output_tokens=15, cache_read_tokens=1000)


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (
            {"prompt_tokens": 2006, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 1920}},
            Usage(input_tokens=86, cache_read_tokens=1920, output_tokens=300),
        ),
        (
            {"prompt_tokens": 100, "completion_tokens": 50, "completion_tokens_details": {"reasoning_tokens": 40}},
            Usage(input_tokens=100, output_tokens=50, reasoning_tokens=40),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 900}},
            Usage(input_tokens=0, output_tokens=0, cache_read_tokens=900),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 30},
            },
            Usage(input_tokens=50, output_tokens=1, cache_read_tokens=20, cache_write_tokens=30),
        ),
        ({"prompt_tokens": None, "completion_tokens": 1}, Usage(output_tokens=1)),
        ({"prompt_tokens": -5, "completion_tokens": 1}, Usage(output_tokens=1)),
        ({"prompt_tokens": True, "completion_tokens": 1}, Usage(output_tokens=1)),
        ({"prompt_tokens": 5.0, "completion_tokens": 2.0}, Usage(input_tokens=5, output_tokens=2)),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": -7}},
            Usage(input_tokens=5, output_tokens=2),
        ),
        ({}, None),
        (None, None),
        ([], None),
        ({"prompt_tokens_details": "x", "completion_tokens_details": 3}, None),
    ],
)
def test_b10_b14_cached_and_reasoning_tokens_of_the_chat_wire(reported, usage):
    draft = Draft()
    read_usage(reported, draft)
    assert draft.usage == usage


@pytest.mark.parametrize("kind", ["text", "thinking", "tool_json"])
def test_b28_half_a_character_is_never_given_out(kind):
    draft = Draft()
    add = getattr(draft, kind)
    pieces = [add("t", text) for text in ("a\ud83d", "", "\ude42b", "\ud83d", "\ud83d", "\ude42", "c\udc00d\ud800")]
    assert "".join(piece.text for piece in pieces if piece) == "a🙂b\ufffd🙂c\ufffdd"
    assert all(piece.text.isprintable() for piece in pieces if piece)
    assert draft.produced.encode().decode() == "a🙂b\ufffd🙂c\ufffdd"


@pytest.mark.parametrize("kind", ["text", "thinking"])
def test_half_a_character_at_the_end_of_an_answer_can_be_stored(kind):
    draft = Draft()
    getattr(draft, kind)("t", "a\ud83d")
    draft.tool("call", id="t\ud800", name="look\ud800", arguments={})
    draft.complete = True
    said, call = draft.answer().blocks
    assert said.text == "a\ufffd"  # type: ignore[union-attr]
    assert (call.id, call.name) == ("t\ufffd", "look\ufffd")  # type: ignore[union-attr]


def calling(*ids: str | None) -> Answer:
    draft = Draft()
    for at, given_id in enumerate(ids):
        draft.tool(at, id=given_id, name="look", arguments="{" if at else {})
    return draft.answer()


def test_two_calls_with_one_id_get_each_their_own():
    answer = calling("x", "x", None, "call_2")
    ids = [call.id for call in answer.blocks]  # type: ignore[union-attr]
    assert ids[0] == "x"
    assert len(set(ids)) == 4
    assert [bad.id for bad in answer.bad_tool_calls] == ids[1:]


def test_calls_are_told_apart_over_a_whole_conversation():
    conversation = Conversation.of("x")
    for _ in range(3):
        answer = with_ids_of_its_own(calling(None, "a", "b"), conversation)
        assert [bad.id for bad in answer.bad_tool_calls] == [call.id for call in answer.blocks[1:]]  # type: ignore[union-attr]
        conversation = conversation.assistant(answer.blocks)
    ids = [block.id for turn in conversation.messages for block in turn.blocks if isinstance(block, ToolUseBlock)]
    assert ids[:3] == ["call_0", "a", "b"], "an id that nobody has stays"
    assert len(set(ids)) == 9


def test_new_ids_are_given_in_the_order_of_the_calls():
    names = [f"n{number}" for number in range(20)]
    before = Conversation.of("x").assistant(calling(*names).blocks)
    renamed = with_ids_of_its_own(calling(*names), before)
    assert [call.id for call in renamed.blocks] == [f"call_{number}" for number in range(20, 40)]  # type: ignore[union-attr]


def test_an_answer_that_never_ended_has_no_stop_reason():
    draft = Draft()
    draft.text("t", "Hello.")
    draft.stop(StopReason.END_TURN)
    assert draft.answer().stop_reason is None
    draft.complete = True
    assert draft.answer().stop_reason is StopReason.END_TURN


def test_an_index_used_twice_for_different_blocks_loses_neither():
    draft = Draft()
    draft.text(0, "Said.")
    draft.tool(0, id="t", name="look")
    draft.thinking(0, "Hm.")
    assert [type(block).__name__ for block in draft.answer().blocks] == ["TextBlock", "ToolUseBlock", "ThinkingBlock"]


@pytest.mark.parametrize("stop", list(StopReason))
@pytest.mark.parametrize(
    "blocks", [(), (TextBlock(""),), (ThinkingBlock(text="hm"),)], ids=["none", "blank", "thought"]
)
def test_b71_every_stop_of_an_answer_that_says_nothing(stop, blocks):
    draft = Draft()
    draft.complete, draft.stop_reason = True, stop
    for number, block in enumerate(blocks):
        draft.text(number, "") if isinstance(block, TextBlock) else draft.thinking(number, block.text)
    answer = draft.answer()
    if stop in (StopReason.STOP_SEQUENCE, StopReason.PAUSE_TURN):
        assert passed(answer).stop_reason is stop
        return
    with pytest.raises(UpstreamError) as caught:
        passed(answer)
    assert isinstance(caught.value, EmptyResponseError) == (stop in (StopReason.END_TURN, StopReason.TOOL_USE))


def passed(answer: Answer) -> Judged:
    return judge(answer, conversation=Conversation.of("x"), shape=None, answer_tool=None, limit=9, model="m")
