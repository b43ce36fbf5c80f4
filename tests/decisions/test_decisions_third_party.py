"""Against code that nobody here wrote: servers that answer our client, clients and a test suite that ours answers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from interlock.catalog.entry import ProviderSettings
from interlock.clients.registry import provider_class
from interlock.clients.simulator import SimulatedProvider
from interlock.decisions import Choice, DecisionRequest, Noul, Score
from interlock.decisions.providers.systemone import SystemOneDecisionClient
from interlock.errors import CredentialError, InvalidRequestError, MalformedResponseError

from .conftest import CARD, KEY

STATE = {"ticket": "My card 4111 1111 1111 1111 was charged twice"}
REQUEST = DecisionRequest(
    STATE,
    {
        "Department": Choice.of("Which team?", {"Billing": "Invoices", "Técnico": None, "sales": None}),
        "is_urgent": Noul.of("Does this convey urgency?"),
        "anger": Score.of("How frustrated?", "Calm", "Cross", "Angry", "Furious"),
    },
)

#: What the reference server can get wrong, and what our client makes of it: an error, or None: it understands all the
#: same. "other" is an answer of its own: what leaks into the model cannot be seen from one answer.
FAULTS: dict[str, Any] = {
    **dict.fromkeys(
        (
            "xssi-200", "first-question-only", "nfd-keys", "boolean-type", "noul-range", "choice-key-case",
            "choice-sum", "choice-second", "legend-1-based", "score-keys-1-based", "score-sum", "score-argmax",
        ),
        MalformedResponseError,
    ),
    **dict.fromkeys(("wrong-route", "reject-jev-latest", "no-null-description"), InvalidRequestError),
    "auth-x-api-key": CredentialError,
    **dict.fromkeys(("id-leaks", "batch-leaks", "order-leaks"), "other"),
    **dict.fromkeys(
        (
            "plain-content-type", "text-errors", "models-404", "auth-rejects-header", "auth-plain",
            "auth-invalid-403-text", "reject-array-state", "strict-ids", "forbid-extra", "string-only-text",
            "noul-two-sided", "noul-needs-instructions", "cap-64", "cap-5-levels", "accept-map-score", "no-usage",
            "float-usage", "extra-answer", "nan", "unprefixed-extra", "choice-no-confidence", "score-no-legend",
            "confidence-over", "confidence-margin", "500-on-unknown-type", "accept-boolean", "validation-400",
            "error-flat",
        )
    ),
}  # fmt: skip


@pytest.fixture
def build(make_entry: Any, make_environment: Any, make_seat: Any) -> Any:
    def build(base_url: str, credential: str | None = "typesafe-api-key", **fields: Any) -> Any:
        entry = make_entry("systemone-decision", **{"wire_model_id": "jev-latest", "prices": {"input": "1"}, **fields})
        client = SystemOneDecisionClient(
            entry, make_environment(ProviderSettings(base_url=base_url, credential=credential))
        )
        seat = make_seat(entry)
        return client, client.bound(seat.binding, seat), seat

    return build


def test_every_fault_of_the_reference_server_is_in_the_table() -> None:
    assert pytest.importorskip("jevcompat.mock").FAULTS.keys() == FAULTS.keys()


_CLEAN: list[Any] = []


@pytest.fixture
async def clean(jev: Any, build: Any) -> Any:
    """What the reference server answers when nothing is wrong. It answers the same every time, so it is asked once."""
    if not _CLEAN:
        client, decisions, _ = build(jev())
        _CLEAN.append(await decisions.decide(REQUEST))
        await client.aclose()
    return _CLEAN[0]


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_is_made_of_each_fault_of_the_reference_server(jev: Any, build: Any, clean: Any, fault: str) -> None:
    expected = FAULTS[fault]
    client, decisions, seat = build(jev(fault))
    if isinstance(expected, type):
        with pytest.raises(expected) as caught:
            await decisions.decide(REQUEST)
        assert type(caught.value) is expected
        assert not CARD.search(str(caught.value))
    else:
        response = await decisions.decide(REQUEST)
        assert list(response.answers) == list(REQUEST.questions)
        if expected is None:
            assert response.choice("Department").probabilities == clean.choice("Department").probabilities
            assert response.choice("Department").confidence == clean.choice("Department").confidence
            assert response.score("anger").confidence == clean.score("anger").confidence
            assert response.usage.estimated == (fault == "no-usage")
    assert len(seat.records) == 1
    await client.aclose()


SERVE = """
import os, sys, threading
from sparrow_decider import cli
class Told(cli.ThreadingHTTPServer):
    def serve_forever(self):
        print(self.server_address[1], flush=True)
        super().serve_forever(0.05)
cli.ThreadingHTTPServer = Told
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
cli.main(["serve", "--port", "0"])
"""


@pytest.fixture
def sparrow_url() -> Iterator[str]:
    """`sparrow-decider serve` in a process of its own, which ends with its standard input."""
    pytest.importorskip("sparrow_decider")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def plain(answer: Any) -> list[float]:
    given = answer.probabilities
    return list(given.values() if isinstance(given, Mapping) else given)


async def test_sparrow_served_says_what_sparrow_in_this_process_says(
    sparrow_url: str, build: Any, make_entry: Any, make_environment: Any, make_seat: Any
) -> None:
    client, served, _ = build(sparrow_url, credential=None)
    entry = make_entry("sparrow", wire_model_id="sparrow-decider")
    local = provider_class("sparrow")(entry, make_environment())
    seat = make_seat(entry)
    request = DecisionRequest("My card was charged twice", REQUEST.questions)
    theirs, ours = await served.decide(request), await local.bound(seat.binding, seat).decide(request)
    for name in ("Department", "is_urgent", "anger"):
        assert plain(theirs.answers[name]) == pytest.approx(plain(ours.answers[name]), abs=1e-6)
    assert theirs.served_model == ours.served_model
    await client.aclose()


# Our server, before others' clients.


@pytest.fixture(scope="module")
def ours() -> Iterator[SimulatedProvider]:
    with SimulatedProvider(keys=[KEY], models=["jev-latest", "jev-1.13.0", "gpt-6-luna"]).in_thread() as provider:
        yield provider


async def test_the_official_client_reads_what_ours_reads(ours: SimulatedProvider, build: Any) -> None:
    sdk = pytest.importorskip("typesafe_sdk", reason="typesafe-sdk, the official client, is not installed")
    client, decisions, _ = build(ours.systemone_url)
    response = await decisions.decide(REQUEST)
    teams = {"Billing": "Invoices", "Técnico": None, "sales": None}
    questions = {
        "Department": sdk.Choice(instructions="Which team?", criteria=teams),
        "is_urgent": sdk.Noul(instructions="Does this convey urgency?"),
        "anger": sdk.Score(instructions="How frustrated?", criteria=["Calm", "Cross", "Angry", "Furious"]),
    }
    with sdk.TypeSafeClient(api_key=KEY, base_url=ours.systemone_url) as official:
        theirs = await asyncio.to_thread(official.system_one, state=STATE, questions=questions, model="jev-latest")
    assert response.choice("Department").probabilities == theirs.choices["Department"].probabilities
    assert response.choice("Department").choice == theirs.choices["Department"].choice
    assert response.choice("Department").confidence == pytest.approx(theirs.choices["Department"].confidence, abs=0.02)
    assert response.noul("is_urgent").noul == theirs.nouls["is_urgent"].noul
    assert dict(enumerate(response.score("anger").probabilities)) == theirs.scores["anger"].probabilities
    assert response.score("anger").confidence == pytest.approx(theirs.scores["anger"].confidence, abs=0.02)
    assert response.usage.input_tokens == theirs.usage.input_tokens
    await client.aclose()


def test_the_conformance_suite_of_the_wire_accepts_our_server(ours: SimulatedProvider) -> None:
    """`jevcompat test URL --key KEY`."""
    runner = pytest.importorskip("jevcompat.runner", reason="jevcompat is not installed")
    report = runner.run(ours.systemone_url, key=KEY, model="jev-latest", timeout=20.0, sdk=True)
    assert report.verdict == "conformant"


def test_openais_own_client_reads_our_decisions(ours: SimulatedProvider) -> None:
    import openai

    with openai.OpenAI(api_key=KEY, base_url=ours.openai_url, max_retries=0) as client:
        found = client.decisions.create(
            model="gpt-6-luna",
            input="My card was charged twice",
            questions=[
                {"type": "predicate", "instructions": "Is it urgent?", "name": "urgent"},
                {"type": "choice", "instructions": "Which team?", "choices": [{"value": "a"}, {"value": "b"}]},
                {"type": "score", "instructions": "How cross?", "levels": [{"label": "calm"}, {"label": "angry"}]},
            ],
        )
    urgent, team, cross = found.answers
    assert urgent.type == "predicate"
    assert urgent.name == "urgent"
    assert team.type == "choice"
    assert team.name is None
    assert cross.type == "score"
    assert [each.label for each in cross.probabilities] == ["calm", "angry"]
    assert found.usage.total_tokens == found.usage.input_tokens + found.usage.output_tokens
