"""The local model: it says how much of a state it read, and its loop stays free."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sparrow_decider

from interlock.decisions import Choice, DecisionRequest, Noul, Score
from interlock.decisions.providers.sparrow import SparrowDecisionClient
from interlock.errors import ConfigurationError, ContextWindowExceededError

AREA = Choice.of(
    "Which area is this about?",
    {"billing": "invoices, charges, refunds, payment", "technical": "errors, crashes, bugs", "sales": "prices, offers"},
)


@pytest.fixture
def sparrow(make_entry: Any, make_environment: Any, make_seat: Any) -> Any:
    def make(model: str = "sparrow-nano-general-v1.1") -> Any:
        entry = make_entry("sparrow", wire_model_id=model)
        seat = make_seat(entry)
        return SparrowDecisionClient(entry, make_environment()).bound(seat.binding, seat), seat

    return make


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("I was charged twice on my invoice and want a refund", "billing"),
        ("The program crashes with an error message when I start it", "technical"),
        ({"subject": "refund", "body": "the payment was taken twice"}, "billing"),
    ],
)
async def test_it_sorts_by_topic(sparrow: Any, state: Any, expected: str) -> None:
    client, _ = sparrow()
    response = await client.decide(DecisionRequest(state, {"area": AREA}))
    assert response.choice("area").choice == expected
    assert not response.truncated
    assert response.read_characters is None


async def test_the_answer_is_the_packages_own(sparrow: Any) -> None:
    import sparrow_decider

    questions = {
        "area": AREA,
        "urgent": Noul.of("Is it urgent?"),
        "mood": Score.of("How angry?", "calm", "cross", "mad"),
    }
    client, _ = sparrow()
    response = await client.decide(DecisionRequest("charged twice, furious", questions))
    expected = sparrow_decider.Decider.load().ask(
        "charged twice, furious",
        {
            "area": {
                "type": "choice",
                "instructions": AREA.question,
                "criteria": {option.name: option.description for option in AREA.options},
            },
            "urgent": {"type": "noul", "instructions": "Is it urgent?"},
            "mood": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "cross", "mad"]},
        },
    )
    assert response.choice("area").probabilities == expected["area"]["probabilities"]
    assert response.noul("urgent").noul == expected["urgent"]["noul"]
    assert response.score("mood").score == expected["mood"]["score"]
    assert response.served_model == "sparrow-nano-general-v1.1"


async def test_a_long_state_is_cut_to_what_is_read_and_the_answer_says_so(sparrow: Any) -> None:
    client, seat = sparrow()
    text = "refund " * 511 + "crash " * 2000
    response = await client.decide(DecisionRequest(text, {"area": AREA}))
    assert response.truncated
    encode = sparrow_decider.Decider.load().static.tok.encode
    assert len(encode(text[: response.read_characters], 10**6)) == 512
    assert len(encode(text[: response.read_characters + 1], 10**6)) == 513
    same = await client.decide(DecisionRequest(text[: response.read_characters], {"area": AREA}))
    assert same.choice("area") == response.choice("area")
    assert not same.truncated
    assert seat.records[0].usage.input_tokens == seat.records[1].usage.input_tokens


async def test_blanks_before_a_state_count_as_read(sparrow: Any) -> None:
    client, _ = sparrow()
    text = "\n" * 700 + "refund " * 600
    response = await client.decide(DecisionRequest(text, {"area": AREA}))
    assert text[: response.read_characters].split() == ["refund"] * 256  # of two tokens each
    assert not (await client.decide(DecisionRequest("\n" * 3_000 + "refund", {"area": AREA}))).truncated


async def test_a_structure_is_cut_too(sparrow: Any) -> None:
    client, _ = sparrow()
    response = await client.decide(DecisionRequest({"lines": ["refund the invoice"] * 900}, {"area": AREA}))
    assert response.truncated
    assert response.choice("area").choice == "billing"


@pytest.mark.parametrize(
    "question",
    [
        Noul.of("word " * 600),
        Choice.of("q", {"a": "word " * 600, "b": None}),
        Score.of("q", "low", "word " * 600),
        Noul.of("q", no="word " * 600),
    ],
)
async def test_a_question_that_would_be_cut_is_refused_before_anything_is_sent(sparrow: Any, question: Any) -> None:
    client, seat = sparrow()
    with pytest.raises(ContextWindowExceededError, match="question 'long' is longer than the 512 tokens") as caught:
        await client.decide(DecisionRequest("s", {"fine": Noul.of("?"), "long": question}))
    assert not caught.value.sent
    assert not seat.permits


async def test_an_unknown_model_is_named_with_those_that_exist(sparrow: Any) -> None:
    client, seat = sparrow("sparrow-of-atlantis")
    with pytest.raises(ConfigurationError, match=r"no sparrow model 'sparrow-of-atlantis'.*sparrow-nano-general-v1\.1"):
        await client.decide(DecisionRequest("s", {"q": Noul.of("?")}))
    assert not seat.permits


@pytest.mark.parametrize("name", ["sparrow-decider", "sparrow-nano-robot-v1.2"])
async def test_other_names_of_models(sparrow: Any, name: str) -> None:
    client, _ = sparrow(name)
    response = await client.decide(DecisionRequest("battery: 6%", {"q": Choice.of("What now?", "charge", "drive on")}))
    assert response.served_model.startswith("sparrow-nano-")


async def test_the_loop_stays_free_during_a_large_request(sparrow: Any) -> None:
    client, _ = sparrow()
    await client.decide(DecisionRequest("loaded", {"q": Noul.of("?")}))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    options = [f"option {number}" for number in range(255)]
    response = await client.decide(
        DecisionRequest("x " * 50_000, {f"q{n}": Choice.of("?", *options) for n in range(5)})
    )
    counting.cancel()
    assert len(response.answers) == 5
    assert turns > 20
