"""Every hosted provider of embeddings over its real SDK or wire: what is sent, and every way in which an answer can be
wrong, late or missing."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import until

from interlock.admission.clock import ManualClock
from interlock.admission.outcome import Dimension, OutcomeKind
from interlock.catalog.usage import Usage
from interlock.clients.simulator import PublishedLimits, SimulatedProvider, Step
from interlock.embeddings import EmbeddingPurpose, TextRefusedError, TextTooLongError, VectorError
from interlock.errors import (
    CredentialError,
    InvalidRequestError,
    MalformedResponseError,
    OverloadedError,
    QuotaExhaustedError,
    RateLimitedError,
    TransientUpstreamError,
    UpstreamError,
)

from .conftest import AWS, COHERE, GEMINI, HOSTED, OPENAI, SECRET, TITAN, Bench, Wire, check_books

GOLDEN = Path(__file__).parent / "golden"
TEXTS = ["one", "two", "three", "four"]


@pytest.fixture(params=HOSTED, ids=lambda wire: wire.id)
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


def wires(which: Callable[[Wire], bool]) -> Any:
    """The test for these wires only."""
    return pytest.mark.parametrize("wire", [wire for wire in HOSTED if which(wire)], ids=lambda wire: wire.id)


def given(wire: Wire) -> list[str]:
    """Texts that go in one request."""
    return TEXTS[:1] if wire.one_text else TEXTS


def rows(wire: Wire, *changed: Any, width: int = 1024) -> list[Any]:
    """A row for each text of a request, the last ones these."""
    count = len(given(wire))
    plain: list[Any] = [[float(at + 1)] + [0.5] * (width - 1) for at in range(count)]
    return [*plain[: count - len(changed)], *changed][-count:] if changed else plain


# What is sent.


@pytest.mark.parametrize("purpose", list(EmbeddingPurpose))
async def test_the_request_is_the_golden_one(bench: Bench, wire: Wire, purpose: EmbeddingPurpose) -> None:
    embeddings, _ = bench.client(wire)
    await embeddings.embed_batch(["Grüße 🎉", 'b\n"c"'], purpose)
    seen = sorted(bench.provider.requests, key=lambda one: json.dumps(one.body))
    sent = [{"path": one.path, "body": one.body} for one in seen]
    file = GOLDEN / f"{wire.id}.{purpose}.json"
    if not file.exists():  # pragma: no cover - how a new wire's file is made
        file.write_text(json.dumps(sent, indent=2, ensure_ascii=False) + "\n")
    assert json.loads(file.read_text()) == sent


async def test_the_purpose_is_told_where_the_wire_knows_it(bench: Bench, wire: Wire) -> None:
    embeddings, _ = bench.client(wire)
    await embeddings.embed("a", EmbeddingPurpose.DOCUMENT)
    document = bench.sent
    await embeddings.embed("a", EmbeddingPurpose.QUERY)
    assert (document != bench.sent) == wire.knows_purpose


async def test_prefixes_tell_the_purpose_in_the_text_and_are_counted(bench: Bench, wire: Wire) -> None:
    prefixes = {"document": "title: none | text: ", "query": "task: search result | query: "}
    embeddings, seat = bench.client(wire, prefixes=prefixes)
    plain, _ = bench.client(wire)
    response = await embeddings.embed("hello", EmbeddingPurpose.QUERY)
    sent = json.dumps(bench.sent)
    assert "task: search result | query: hello" in sent
    assert "taskType" not in sent
    same = await plain.embed("task: search result | query: hello", EmbeddingPurpose.QUERY)
    np.testing.assert_allclose(response.vector, same.vector, atol=1e-6)
    assert seat.permits[0].input_tokens >= 7


async def test_numbers_are_asked_for_as_numbers_and_no_width_where_none_is_declared(bench: Bench, wire: Wire) -> None:
    entry = {
        "amazon.titan-embed-text-v2:0": "amazon.titan-embed-text-v1",
        "cohere.embed-v4:0": "cohere.embed-english-v3",
    }
    model = entry.get(wire.entry["wire_model_id"], wire.entry["wire_model_id"])
    native = {"amazon.titan-embed-text-v1": 1536, "cohere.embed-english-v3": 1024}.get(model, wire.entry["dimensions"])
    embeddings, _ = bench.client(wire, wire_model_id=model, requested_dimensions=None, dimensions=native)
    response = await embeddings.embed("hello")
    assert not {"dimensions", "output_dimension", "normalize"} & bench.sent.keys()
    assert "outputDimensionality" not in json.dumps(bench.sent)
    assert response.width == 1024
    if wire.speaks == "openai":
        assert bench.sent["encoding_format"] == "float"


async def test_options_of_the_entry_are_merged_last_but_do_not_undo_the_call(bench: Bench, wire: Wire) -> None:
    if wire.speaks == "openai":
        embeddings, _ = bench.client(wire, provider_options={"user": "u-1"})
        await embeddings.embed("hello")
        assert bench.sent["user"] == "u-1"
    name = next(iter(sorted(type(bench.template(wire)).reserved & {"input", "texts", "inputText", "requests"})))
    refused, seat = bench.client(wire, provider_options={name: "x"})
    with pytest.raises(InvalidRequestError, match=name):
        await refused.embed("hello")
    assert seat.records[-1].cost == 0


async def test_cohere_of_the_third_version_takes_2048_characters(bench: Bench) -> None:
    fields = {"wire_model_id": "us.cohere.embed-multilingual-v3", "requested_dimensions": None, "dimensions": 1024}
    embeddings, seat = bench.client(COHERE, **fields)
    with pytest.raises(TextTooLongError, match="2,048 are allowed"):
        await embeddings.embed_batch(["fine", "x " * 1_100])
    assert not seat.permits
    assert (await embeddings.embed_batch(["fine", "x " * 1_100], split="average")).split == (1,)


async def test_an_access_key_signs_for_bedrock_and_a_bearer_token_needs_no_signature(bench: Bench) -> None:
    for wire in (TITAN, COHERE):
        embeddings, _ = bench.client(wire)
        await embeddings.embed("hello")
        assert bench.provider.requests[-1].signed_for == "eu-west-1/bedrock"
    bench.environ["TEST_BEARER_TOKEN_BEDROCK"] = SECRET
    embeddings, _ = bench.client(TITAN, settings={**AWS, "credential": "test-bearer-token-bedrock"})
    await embeddings.embed("hello")
    assert bench.provider.requests[-1].signed_for is None


async def test_vertex_has_the_config_apart_and_the_project_in_the_path(bench: Bench) -> None:
    vertex = next(wire for wire in HOSTED if wire.id == "vertex-embeddings")
    embeddings, _ = bench.client(vertex)
    await embeddings.embed("hello", EmbeddingPurpose.QUERY)
    assert bench.sent["requests"][0]["embedContentConfig"]["taskType"] == "RETRIEVAL_QUERY"
    assert "/projects/the-project/locations/global/" in bench.provider.requests[-1].path


# How it fails.

FAILURES = [
    (Step.rate_limited(7), RateLimitedError, OutcomeKind.RATE_LIMITED),
    (Step.status(529), OverloadedError, OutcomeKind.OVERLOADED),
    (Step.server_error(500), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.server_error(503), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.html(502), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.status(408), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.quota(), QuotaExhaustedError, OutcomeKind.REJECTED),
    (Step.status(401), CredentialError, OutcomeKind.REJECTED),
    (Step.status(403), CredentialError, OutcomeKind.REJECTED),
    (Step.status(400), InvalidRequestError, OutcomeKind.REJECTED),
    (Step.status(404), InvalidRequestError, OutcomeKind.REJECTED),
    (Step.status(422, b""), InvalidRequestError, OutcomeKind.REJECTED),
    (Step.status(307, b"", {"location": "http://127.0.0.1:1/"}), InvalidRequestError, OutcomeKind.REJECTED),
]


@pytest.mark.parametrize(
    ("step", "class_", "kind"), FAILURES, ids=[f"{step.name}-{at}" for at, (step, _, _) in enumerate(FAILURES)]
)
async def test_b03_each_failure_is_one_request_of_its_class(
    bench: Bench, wire: Wire, step: Step, class_: type[UpstreamError], kind: OutcomeKind
) -> None:
    embeddings, seat = bench.client(wire)
    bench.script(step)
    with pytest.raises(UpstreamError) as caught:
        await embeddings.embed("hello")
    error = caught.value
    assert type(error) is class_
    assert (error.model, error.provider) == ("the-model", wire.key)
    assert error.__cause__ is error.__context__ is None
    assert bench.provider.count == len(seat.permits) == 1
    assert [outcome.kind for outcome in seat.permits[0].outcomes] == [kind]
    assert seat.records[0].outcome == error.code
    if error.status != 408:
        assert (seat.records[0].cost, seat.records[0].usage) == (0, Usage())
    if step.name == "rate_limited":
        assert error.retry_after_s == seat.permits[0].outcomes[0].retry_after_s == (7 if wire.hints else None)
    check_books(seat)


async def test_b03_wire_requests_are_permits_are_records_whatever_fails(bench: Bench, wire: Wire) -> None:
    embeddings, seat = bench.client(wire)
    steps = [Step.rate_limited(0), Step.status(529), Step.server_error(503), Step.status(409), Step.html(),
             Step.cut(0, "reset"), Step.cut(None, "close"),
             Step.status(500, b"", {"x-should-retry": "true"})]  # fmt: skip
    bench.script(*steps)
    for _ in range(len(steps) + 1):
        with suppress(UpstreamError):
            await embeddings.embed("hello")
    assert bench.provider.count == len(seat.permits) == len(seat.records) == len(steps) + 1
    assert all(permit.sends >= 1 for permit in seat.permits)
    check_books(seat)


@pytest.mark.parametrize(
    ("step", "class_"),
    [
        (Step.html(), MalformedResponseError),
        (Step.body(b""), MalformedResponseError),
        (Step.body([1, 2]), MalformedResponseError),
        (Step.body({"something": "else"}), MalformedResponseError),
        (Step.body({"data": "no", "embeddings": 3}), MalformedResponseError),
        (Step.cut(0, "close"), TransientUpstreamError),
        (Step.cut(None, "reset"), TransientUpstreamError),
        (Step.cut(0, "clean"), MalformedResponseError),
    ],
    ids=["html", "empty", "list", "other", "odd", "close", "reset", "half"],
)
async def test_what_is_not_of_the_wire_is_malformed_and_a_cut_body_transient(
    bench: Bench, wire: Wire, step: Step, class_: type[UpstreamError]
) -> None:
    embeddings, seat = bench.client(wire)
    bench.script(step)
    with pytest.raises(class_) as caught:
        await embeddings.embed("hello")
    assert caught.value.retryable
    assert SECRET not in str(caught.value)
    check_books(seat)


# What the answer says.


@wires(lambda wire: wire.numbered)
@pytest.mark.parametrize("indexes", [[0, 1, 3], [0, 1, 1, 3], [0, 1, 2, 4], [0, 1, 2, None], []])
async def test_b25_gaps_and_duplicates_are_refused_and_paid(bench: Bench, wire: Wire, indexes: list[Any]) -> None:
    embeddings, seat = bench.client(wire)
    bench.script(Step.body(wire.answer(rows(wire)[: len(indexes)], indexes)))
    with pytest.raises(MalformedResponseError) as caught:
        await embeddings.embed_batch(TEXTS)
    assert caught.value.retryable
    assert seat.records[0].usage.input_tokens == 9
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.COMPLETED


@pytest.mark.parametrize(("wire", "broken"), [(OPENAI, {"data": "no"}), (GEMINI, {"embeddings": [{}]})])
async def test_a_body_that_is_not_of_its_wire_is_paid_all_the_same(bench: Bench, wire: Wire, broken: Any) -> None:
    embeddings, seat = bench.client(wire)
    bench.script(Step.body({**wire.answer([[1.0]]), **broken}))
    with pytest.raises(MalformedResponseError, match="not of its wire"):
        await embeddings.embed("a")
    assert (seat.records[0].usage.input_tokens, seat.records[0].usage.estimated) == (9, False)


@wires(lambda wire: wire.numbered)
async def test_b25_results_are_put_back_in_order(bench: Bench, wire: Wire) -> None:
    embeddings, _ = bench.client(wire)
    plain = rows(wire)
    bench.script(
        Step.body(wire.answer(plain)), Step.body(wire.answer([plain[at] for at in (2, 0, 3, 1)], [2, 0, 3, 1]))
    )
    expected = await embeddings.embed_batch(TEXTS)
    np.testing.assert_array_equal((await embeddings.embed_batch(TEXTS)).vectors, expected.vectors)


@wires(lambda wire: not wire.one_text)
@pytest.mark.parametrize("missing", [1, -1])
async def test_b25_another_number_of_vectors_is_refused(bench: Bench, wire: Wire, missing: int) -> None:
    embeddings, _ = bench.client(wire)
    answered = rows(wire)[:-1] if missing > 0 else [*rows(wire), rows(wire)[0]]
    bench.script(Step.body(wire.answer(answered)))
    with pytest.raises(MalformedResponseError, match="4 texts were sent"):
        await embeddings.embed_batch(TEXTS)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ([0.0] * 1024, "is zero"),
        ([1.0] * 1023, "1023 dimensions where the catalog entry declares 1024"),
        ([1.0] * 1025, "1025 dimensions"),
        ([float("nan")] + [1.0] * 1023, "not a finite number"),
        ([1e400] + [1.0] * 1023, "not a finite number"),
        ([None] + [1.0] * 1023, "flat list of numbers"),
        ("not base64!", "base64"),
    ],
    ids=["zero", "short", "long", "nan", "inf", "null", "text"],
)
async def test_b31_a_vector_without_direction_or_of_another_width_is_an_error(
    bench: Bench, wire: Wire, row: Any, why: str
) -> None:
    embeddings, seat = bench.client(wire)
    bench.script(Step.body(wire.answer(rows(wire, row))))
    with pytest.raises(VectorError, match=why) as caught:
        await embeddings.embed_batch(given(wire))
    assert not caught.value.retryable
    assert caught.value.row == len(given(wire)) - 1
    assert seat.records[0].outcome == "bad_vector"


async def test_base64_is_read_where_a_server_sends_it_all_the_same(bench: Bench, wire: Wire) -> None:
    embeddings, _ = bench.client(wire)
    plain = rows(wire)
    coded = [base64.b64encode(np.asarray(row, "<f4").tobytes()).decode() for row in plain]
    bench.script(Step.body(wire.answer(plain)), Step.body(wire.answer(coded)))
    first = await embeddings.embed_batch(given(wire))
    np.testing.assert_allclose((await embeddings.embed_batch(given(wire))).vectors, first.vectors, atol=1e-6)


async def test_similar_texts_are_near_each_other(bench: Bench, wire: Wire) -> None:
    embeddings, _ = bench.client(wire)
    about = ["the invoice was charged twice", "charged twice for one invoice", "a walk in the mountains at dawn"]
    vectors = (await embeddings.embed_batch(about)).vectors
    assert vectors[0] @ vectors[1] > 0.4 > vectors[0] @ vectors[2] + 0.2


async def test_an_unknown_usage_is_the_reservation_flagged(bench: Bench, wire: Wire) -> None:
    answer = wire.answer(rows(wire))
    for name in ("usage", "usageMetadata", "inputTextTokenCount"):
        answer.pop(name, None)
    embeddings, seat = bench.client(wire)
    bench.script(Step.body(answer))
    response = await embeddings.embed_batch(given(wire))
    assert response.usage.estimated
    assert response.usage.input_tokens == seat.permits[0].input_tokens


@pytest.mark.parametrize("known", [[3, 4], [3, None], [None, None]])
async def test_gemini_counts_by_text_are_a_usage_where_each_text_has_one(bench: Bench, known: list[Any]) -> None:
    answer = GEMINI.answer([[1.0] * 1024] * 2)
    del answer["usageMetadata"]
    for one, count in zip(answer["embeddings"], known, strict=True):
        one.update({} if count is None else {"statistics": {"tokenCount": count}})
    embeddings, _ = bench.client(GEMINI)
    bench.script(Step.body(answer))
    usage = (await embeddings.embed_batch(["a", "b"])).usage
    assert (usage.estimated, usage.input_tokens == 7) == ((False, True) if None not in known else (True, False))


@pytest.mark.parametrize("count", ["many", -3, True, None, 1e300, [], {}])
async def test_a_usage_that_is_no_count_is_unknown(bench: Bench, wire: Wire, count: Any) -> None:
    answer = wire.answer(rows(wire))
    answer["usage"] = {"prompt_tokens": count}
    answer["usageMetadata"] = {"promptTokenCount": count}
    answer["inputTextTokenCount"] = count
    embeddings, _ = bench.client(wire)
    bench.script(Step.body(answer))
    assert (await embeddings.embed_batch(given(wire))).usage.estimated


async def test_request_ids_served_model_and_limits_are_read(bench: Bench, wire: Wire, make_seat: Any) -> None:
    async with SimulatedProvider(limits=PublishedLimits(rpm=600, tpm=90_000)) as limited:
        bench.provider, before = limited, bench.provider
        embeddings, seat = bench.client(wire)
        response = await embeddings.embed("hello")
        bench.provider = before
    assert bool(response.request_ids) == wire.names_requests
    reported = seat.permits[0].outcomes[0].reported
    assert bool(reported) == wire.states_limits
    if wire.states_limits:
        assert reported[Dimension.REQUESTS].limit == 600
        assert response.served_model == wire.entry["wire_model_id"]


# Texts that a provider refuses.


async def test_b37_the_text_that_the_provider_refuses_is_named(bench: Bench, wire: Wire) -> None:
    embeddings, seat = bench.client(wire)
    texts = [f"text {number}" for number in range(8)]
    texts[5] = "word " * 110_000  # more than every one of these models reads, and no window is declared
    with pytest.raises((TextRefusedError, TextTooLongError), match="text 5 ") as caught:
        await embeddings.embed_batch(texts)
    assert caught.value.indexes == (5,)
    assert caught.value.kept is None or len(caught.value.kept) == 7
    assert bench.provider.count == len(seat.records)
    check_books(seat)


# Time, and leaving.


async def test_an_attempt_that_takes_too_long_is_transient_and_closes_its_connection(bench: Bench, wire: Wire) -> None:
    clock = ManualClock()
    embeddings, seat = bench.client(wire, clock=clock, timeout_s=60)
    bench.script(Step.stall(None))
    task = asyncio.ensure_future(embeddings.embed("hello"))
    await until(lambda: bench.provider.count)
    await clock.advance(60)
    with pytest.raises(TransientUpstreamError, match="did not answer within 60 s"):
        await task
    await bench.provider.idle()
    assert bench.provider.requests[-1].cut == "client"
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.UNKNOWN
    assert seat.records[0].usage.estimated


async def test_a_cancelled_call_closes_its_connection_and_is_recorded(bench: Bench, wire: Wire) -> None:
    embeddings, seat = bench.client(wire)
    bench.script(Step.stall(None))
    task = asyncio.ensure_future(embeddings.embed("hello"))
    await until(lambda: bench.provider.count)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await bench.provider.idle()
    assert bench.provider.requests[-1].cut == "client"
    assert [record.outcome for record in seat.records] == ["cancelled"]


async def test_a_server_that_is_not_there_costs_nothing(bench: Bench, wire: Wire, unused_port: int) -> None:
    embeddings, seat = bench.client(wire, base_url=f"http://127.0.0.1:{unused_port}")
    with pytest.raises(TransientUpstreamError) as caught:
        await embeddings.embed("hello")
    assert not caught.value.sent
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.UNSENT
    assert seat.records[0].cost == 0


# Credentials.


@wires(lambda wire: wire.id != "vertex-embeddings")
async def test_b75_a_key_that_was_replaced_is_tried_again_and_no_secret_leaves(bench: Bench, wire: Wire) -> None:
    embeddings, seat = bench.client(wire)
    await embeddings.embed("hello")
    bench.environ["TEST_KEY"] = bench.environ["TEST_AWS_SECRET_ACCESS_KEY"] = "sk-the-next-secret-key-9876543210"
    bench.script(Step.status(401, {"message": f"bad key {SECRET}", "error": {"message": f"bad key {SECRET}"}}))
    with pytest.raises(TransientUpstreamError, match="has since been replaced") as caught:
        await embeddings.embed("hello")
    assert SECRET not in str(caught.value) + repr(seat.records)
    await embeddings.embed("hello")
    assert seat.records[-1].outcome == "ok"


@wires(lambda wire: wire.id not in ("vertex-embeddings", "openai-compatible-embeddings"))
async def test_a_missing_key_is_said_before_a_permit_is_drawn(bench: Bench, wire: Wire) -> None:
    # Without a key AWS's own chain would be asked; without a region nothing is.
    settings = {"region": None} if wire.speaks == "bedrock" else {"credential": "nobodys-key"}
    embeddings, seat = bench.client(wire, settings=settings)
    with pytest.raises(CredentialError):
        await embeddings.embed("hello")
    assert not bench.provider.count
    assert all(record.cost == 0 for record in seat.records)


async def test_a_compatible_server_without_a_key_gets_no_header(bench: Bench) -> None:
    compatible = next(wire for wire in HOSTED if wire.key == "openai-compatible-embeddings")
    embeddings, _ = bench.client(compatible, settings={"credential": None})
    with pytest.raises(CredentialError):  # the simulated provider wants one
        await embeddings.embed("hello")
    assert "authorization" not in bench.provider.requests[-1].headers


async def test_a_gemini_key_travels_in_a_header(bench: Bench) -> None:
    embeddings, _ = bench.client(GEMINI)
    await embeddings.embed("hello")
    assert bench.provider.requests[-1].headers["x-goog-api-key"] == "[redacted]"
    assert "key=" not in bench.provider.requests[-1].path


async def test_a_compatible_server_needs_an_address(bench: Bench) -> None:
    compatible = next(wire for wire in HOSTED if wire.key == "openai-compatible-embeddings")
    embeddings, _ = bench.client(compatible, base_url=None)
    with pytest.raises(InvalidRequestError, match="base_url"):
        await embeddings.embed("hello")


async def test_the_accounts_models_are_listed_and_none_of_them_converses(bench: Bench, wire: Wire) -> None:
    async with SimulatedProvider(models=["amazon.titan-embed-text-v2:0", "a-chat-model"]) as listing:
        bench.provider, before = listing, bench.provider
        models = await bench.template(wire).list_models()
        bench.provider = before
    assert {"amazon.titan-embed-text-v2:0", "a-chat-model"} == {model.wire_model_id for model in models}
    assert not any(model.chat for model in models)


def test_every_hosted_key_is_tried() -> None:
    from interlock.clients.registry import provider_keys

    tried = {wire.key for wire in HOSTED}
    assert {key for key in provider_keys() if key.endswith("-embeddings")} <= tried
    assert OPENAI.key in tried
