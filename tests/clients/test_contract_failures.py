"""How every chat provider must fail: each class of failure, alone and inside a stream; what is not of the wire."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from interlock.admission.outcome import OutcomeKind
from interlock.catalog.usage import Usage
from interlock.clients.options import StreamingMode
from interlock.clients.response import Piece
from interlock.clients.simulator import Step
from interlock.errors import (
    CredentialError,
    InvalidRequestError,
    MalformedResponseError,
    OverloadedError,
    QuotaExhaustedError,
    RateLimitedError,
    StreamBufferError,
    StreamInterruptedError,
    TransientUpstreamError,
    UpstreamError,
)

from .conftest import asked


async def read(stream: Any) -> list[Piece]:
    async with stream as pieces:
        return [piece async for piece in pieces]


async def noted(stream: Any, seen: list[str]) -> None:
    """Read a stream, noting each text as it comes."""
    async with stream as pieces:
        async for piece in pieces:
            seen.append(piece.text)


# Every class of failure, alone and as the first thing of a stream.

FAILURES = [
    (Step.rate_limited(7), RateLimitedError, OutcomeKind.RATE_LIMITED),
    (Step.rate_limited(None), RateLimitedError, OutcomeKind.RATE_LIMITED),
    (Step.status(529), OverloadedError, OutcomeKind.OVERLOADED),
    (Step.server_error(500), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.server_error(503), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.html(502), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.status(408), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.status(409), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.status(424), TransientUpstreamError, OutcomeKind.UNKNOWN),
    (Step.quota(), QuotaExhaustedError, OutcomeKind.REJECTED),
    (Step.status(402), QuotaExhaustedError, OutcomeKind.REJECTED),
    (Step.status(401), CredentialError, OutcomeKind.REJECTED),
    (Step.status(403), CredentialError, OutcomeKind.REJECTED),
    (Step.status(400), InvalidRequestError, OutcomeKind.REJECTED),
    (Step.status(404), InvalidRequestError, OutcomeKind.REJECTED),
    (Step.status(413), InvalidRequestError, OutcomeKind.REJECTED),
    (Step.status(422, b""), InvalidRequestError, OutcomeKind.REJECTED),
    (Step.status(307, b"", {"location": "http://127.0.0.1:1/"}), InvalidRequestError, OutcomeKind.REJECTED),
]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("step", "class_", "kind"), FAILURES, ids=[f"{step.name}-{at}" for at, (step, _, _) in enumerate(FAILURES)]
)
async def test_b03_each_failure_is_one_request_of_its_class(bench, wire, step, class_, kind, streamed):
    client, seat = bench.client(wire)
    bench.script(step)
    with pytest.raises(UpstreamError) as caught:
        await asked(client, "Hello.", streamed=streamed)
    error = caught.value
    assert type(error) is class_
    assert (error.model, error.provider) == ("the-model", wire.key)
    if step.failure is not None and step.failure.status is not None:
        assert error.status == step.failure.status
    assert error.__cause__ is None
    assert error.__context__ is None
    assert bench.provider.count == 1
    assert seat.kinds == [kind]
    assert seat.last.outcome == error.code
    if error.status == 408:
        assert seat.last.usage.estimated, "behind a gateway's timeout the answer may have been made, and billed"
    else:
        assert seat.last.cost == 0, "an error is not billed"
        assert seat.last.usage == Usage()
    seat.check_books()


async def test_the_hint_and_the_request_id_travel(bench, wire):
    client, seat = bench.client(wire)
    bench.script(Step.rate_limited(7))
    with pytest.raises(RateLimitedError) as caught:
        await client.single_response("Hello.")
    assert caught.value.retry_after_s == (7 if wire.hints else None)
    assert caught.value.request_id or not wire.names_requests
    assert seat.last.request_id == caught.value.request_id
    assert seat.permits[0].outcome.retry_after_s == (7 if wire.hints else None)


@pytest.mark.parametrize("hint", [60, 61, 600, 133107])
async def test_b48_long_retry_after(bench, wire, hint):
    client, seat = bench.client(wire)
    bench.script(Step.rate_limited(hint))
    with pytest.raises(RateLimitedError) as caught:
        await client.single_response("Hello.")
    assert caught.value.retry_after_s == (hint if wire.hints else None)
    assert seat.permits[0].outcome.retry_after_s == caught.value.retry_after_s
    assert bench.provider.count == 1


async def test_b11_quota_is_one_request(bench, wire):
    client, seat = bench.client(wire)
    bench.script(Step.quota())
    with pytest.raises(QuotaExhaustedError) as caught:
        await client.single_response("Hello.")
    assert not caught.value.retryable
    assert bench.provider.count == 1
    assert seat.kinds == [OutcomeKind.REJECTED]


# Errors inside a stream that began with 200, and streams that end too early.


def settled(wire: Any) -> OutcomeKind:
    """How an overload that comes inside a stream is settled."""
    return OutcomeKind.OVERLOADED if wire.overload is OverloadedError else OutcomeKind.UNKNOWN


@pytest.mark.parametrize("after", [None, 0], ids=["only-event", "after-start"])
async def test_b01_sse_error_under_200_before_the_first_piece(bench, wire, after):
    client, seat = bench.client(wire)
    bench.script(Step.stream_error(after_pieces=after))
    with pytest.raises(wire.overload) as caught:
        await read(client.stream_response("Hello."))
    assert type(caught.value) is wire.overload
    assert caught.value.retryable
    assert seat.kinds == [settled(wire)]
    # ... and the next attempt is as if nothing had been.
    bench.script(Step.answer("Fine."))
    assert (await read(client.stream_response("Hello.")))[-1].response.text == "Fine."


async def test_b01_sse_error_after_the_first_piece(bench, wire):
    client, seat = bench.client(wire)
    bench.script(Step.stream_error(after_pieces=2))
    seen: list[str] = []
    with pytest.raises(StreamInterruptedError) as caught:
        await noted(client.stream_response("Tell me a story of some length, please."), seen)
    error = caught.value
    assert error.partial == "".join(seen)
    assert error.partial
    assert not error.retryable
    assert bench.provider.count == 1, "not sent again behind the caller's back"
    assert seat.last.outcome == "stream_interrupted"
    assert seat.kinds == [settled(wire)], "the throttle hears of it all the same"
    assert seat.last.usage.output_tokens > 0


@pytest.mark.parametrize("kind", ["rate_limit_error", "api_error"])
async def test_b01_other_errors_inside_a_stream(bench, wire, kind):
    client, seat = bench.client(wire)
    bench.script(Step.stream_error(kind, "No."))
    limited = kind == "rate_limit_error"
    with pytest.raises(RateLimitedError if limited else TransientUpstreamError):
        await read(client.stream_response("Hello."))
    assert seat.kinds == [OutcomeKind.RATE_LIMITED if limited else OutcomeKind.UNKNOWN]


@pytest.mark.parametrize("how", ["clean", "close", "reset"])
@pytest.mark.parametrize("after", [None, 0, 2], ids=["nothing", "start", "two-pieces"])
async def test_b02_b13_a_stream_that_ends_too_early_is_no_success(bench, wire, how, after):
    client, seat = bench.client(wire)
    bench.script(Step.cut(after, how))
    with pytest.raises(UpstreamError) as caught:
        await read(client.stream_response("Tell me a story of some length, please."))
    error = caught.value
    if after == 2:
        assert type(error) is StreamInterruptedError
        assert error.partial
    else:
        assert type(error) in (TransientUpstreamError, MalformedResponseError)
        assert error.retryable
    assert seat.kinds == [OutcomeKind.UNKNOWN]
    assert seat.last.usage.estimated
    assert seat.last.cost > 0, "the provider may bill it"
    assert bench.provider.count == 1
    seat.check_books()


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_b21_a_whole_answer_that_is_lost(bench, wire, how):
    client, seat = bench.client(wire, input_tokens=50, output_tokens=1_000)
    bench.script(Step.cut(0, how))
    with pytest.raises(TransientUpstreamError) as caught:
        await client.single_response("Hello.")
    assert caught.value.sent
    assert seat.kinds == [OutcomeKind.UNKNOWN]
    assert seat.last.usage == Usage(input_tokens=50, output_tokens=1_000, estimated=True)
    assert seat.last.cost == (50 * Decimal(3) + 1_000 * Decimal(15)) / 1_000_000


async def test_b21_a_connection_that_was_never_made_refunds_everything(bench, wire):
    client, seat = bench.client(wire, base_url="http://127.0.0.1:9/v1")
    with pytest.raises(TransientUpstreamError) as caught:
        await client.single_response("Hello.")
    assert caught.value.sent is False
    assert seat.kinds == [OutcomeKind.UNSENT]
    assert seat.last.cost == 0
    assert bench.provider.count == 0


# What is not of the wire.


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "step",
    [
        Step.html(),
        Step.body(b"[]", "application/json"),
        Step.body(b"null", "application/json"),
        Step.body(b"{}", "application/json"),
        Step.body(b'{"type": "mess', "application/json"),
        Step.body(b"", "application/json", status=204),
        Step.body(b"\x1f\x8bbroken", "application/json", headers={"content-encoding": "gzip"}),
        Step.body(b"\xff\xfe\x00", "application/json"),
        Step.body(b"[" * 100_000, "application/json"),
        Step.body(b"hello", "text/plain"),
    ],
    ids=["html", "list", "null", "empty-object", "cut-json", "204", "broken-gzip", "not-utf8", "deep", "text"],
)
async def test_b63_html_200(bench, wire, step, streamed):
    client, seat = bench.client(wire)
    bench.script(step)
    with pytest.raises(TransientUpstreamError) as caught:
        await asked(client, "Hello.", streamed=streamed)
    assert len(str(caught.value)) < 700
    if step.name == "html":
        assert type(caught.value) is MalformedResponseError
        assert "text/html" in str(caught.value)
    if step.name != "server_error":
        assert "127.0.0.1" in str(caught.value)
    assert seat.kinds in ([OutcomeKind.UNKNOWN], [OutcomeKind.COMPLETED])
    assert bench.provider.count == 1
    seat.check_books()


@pytest.mark.parametrize("event", [
    "not json", "[1, 2]", "null", '"text"', "{}", '{"type": 7}', '{"choices": 3}', '{"choices": [7]}',
    '{"type": "content_block_delta", "index": 0}', '{"type": "message_start"}',
    '{"choices": [{"delta": {"tool_calls": [7]}}]}', "{" * 50, "[" * 100_000, "\ud83d".encode("utf-8", "surrogatepass"),
], ids=range(14))  # fmt: skip
async def test_an_event_that_is_not_of_the_wire(bench, wire, event):
    client, seat = bench.client(wire)
    data = event if isinstance(event, bytes) else event.encode()
    bench.script(Step.events(b"event: content_block_delta\ndata: " + data + b"\n\n"))
    with pytest.raises(TransientUpstreamError):
        await read(client.stream_response("Hello."))
    seat.check_books()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b41_an_error_body_under_200_is_of_its_class(bench, wire, streamed):
    client, seat = bench.client(wire)
    said = {"type": "error", "error": {"type": "overloaded_error", "code": 529, "message": "Full."}}
    bench.script(Step.body(said), Step.body({"error": {"code": "insufficient_quota", "message": "Pay."}}))
    for class_ in (OverloadedError, QuotaExhaustedError):
        with pytest.raises(class_) as caught:
            await asked(client, "Hello.", streamed=streamed)
        assert type(caught.value) is class_
    assert seat.kinds == [OutcomeKind.OVERLOADED, OutcomeKind.REJECTED]
    seat.check_books()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_error_that_its_reader_stumbles_over_is_settled_like_any_other(bench, wire, streamed, monkeypatch):
    client, seat = bench.client(wire, settings={"max_connections": 1})

    def stumble(error: Exception) -> UpstreamError | None:
        raise KeyError(str(error))

    monkeypatch.setattr(client._client, "read_error", stumble)
    for _ in range(2):
        bench.script(Step.cut(0, "reset"))
        with pytest.raises(MalformedResponseError, match=r"cannot be read \(KeyError\)") as caught:
            await asked(client, "Hello.", streamed=streamed)
        assert caught.value.__context__ is None
    assert len(seat.records) == 2
    seat.check_books()


# SAFE streams.


async def test_a_safe_stream_delivers_nothing_of_a_broken_answer(bench, wire):
    client, seat = bench.client(wire)
    bench.script(Step.stream_error(after_pieces=2), Step.answer("All of it."))
    stream = client.stream_response("Tell me a story of some length, please.", mode=StreamingMode.SAFE)
    with pytest.raises(wire.overload):
        await read(stream)
    pieces = await read(client.stream_response("Again.", mode=StreamingMode.SAFE))
    assert "".join(piece.text for piece in pieces) == "All of it."
    assert seat.kinds == [settled(wire), OutcomeKind.COMPLETED]


async def test_a_safe_stream_has_a_bound(bench, wire, until, monkeypatch):
    monkeypatch.setattr("interlock.clients.stream.BUFFER_LIMIT", 20)
    client, seat = bench.client(wire)
    bench.script(Step.stall(4))
    with pytest.raises(StreamBufferError):
        await client.stream_response("Tell me a story of some length, please.", mode=StreamingMode.SAFE).finish()
    assert seat.kinds == [OutcomeKind.ABANDONED]
    await until(lambda: bench.provider.requests[-1].cut == "client")
    seat.check_books()
