"""The System One wire over HTTP: against the reference server and its faults, and against a server on a script."""

from __future__ import annotations

import asyncio
import json
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from interlock.admission.outcome import OutcomeKind
from interlock.catalog.entry import ProviderSettings
from interlock.credentials import Chain, EnvironmentStore
from interlock.decisions import Choice, DecisionRequest, Noul, Score
from interlock.decisions.providers.systemone import SystemOneDecisionClient
from interlock.errors import (
    ContextWindowExceededError,
    CredentialError,
    InterlockError,
    InvalidRequestError,
    MalformedResponseError,
    OverloadedError,
    QuotaExhaustedError,
    RateLimitedError,
    TransientUpstreamError,
    UpstreamError,
)

from .conftest import CARD

KEY = "tsk-0123456789abcdef-secret"
STATE = {"ticket": "My card 4111 1111 1111 1111 was charged twice"}
QUESTIONS: dict[str, Any] = {
    "Department": Choice.of("Which team?", {"Billing": "Invoices", "Técnico": None, "sales": None}),
    "is_urgent": Noul.of("Does this convey urgency?"),
    "anger": Score.of("How frustrated?", "Calm", "Cross", "Angry", "Furious"),
}
REQUEST = DecisionRequest(STATE, QUESTIONS)
GOOD = {"model": "m", "answers": {"q": {"type": "noul", "noul": 0.7}}, "usage": {"input_tokens": 9, "output_tokens": 1}}


@pytest.fixture
def build(make_entry: Any, make_environment: Any, make_seat: Any) -> Any:
    def build(base_url: str | None, credential: str | None = "typesafe-api-key", **fields: Any) -> Any:
        known = {"wire_model_id": "jev-latest", "prices": {"input": "1"}}
        entry = make_entry("systemone-decision", **{**known, **fields.pop("entry", {})})
        settings = ProviderSettings(base_url=base_url, credential=credential)
        client = SystemOneDecisionClient(entry, make_environment(settings, **fields))
        seat = make_seat(entry)
        return client, client.bound(seat.binding, seat), seat

    return build


# Against the reference server. Its faults are all in test_decisions_third_party.py.


async def test_usage_that_is_not_reported_is_the_reservation_flagged(jev: Any, build: Any) -> None:
    client, decisions, seat = build(jev("no-usage"))
    response = await decisions.decide(REQUEST)
    assert response.usage.estimated
    assert response.usage.input_tokens == seat.permits[0].input_tokens
    await client.aclose()


@pytest.mark.parametrize("fault", [(), ("auth-invalid-403-text",)])
async def test_a_refused_key_names_the_credential_and_never_the_key(
    jev: Any, build: Any, fault: tuple[str, ...]
) -> None:
    client, decisions, seat = build(jev(*fault, key="another-key-that-is-right"))
    with pytest.raises(CredentialError, match="typesafe-api-key") as caught:
        await decisions.decide(REQUEST)
    assert caught.value.credential == "typesafe-api-key"
    assert KEY not in "".join(traceback.format_exception(caught.value)) + str(seat.records[0].error)
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.REJECTED
    await client.aclose()


async def test_a_rotated_key_is_read_again_after_a_401(jev: Any, build: Any) -> None:
    environ = {"TYPESAFE_API_KEY": "the-old-key-0123456789"}
    chain = Chain(EnvironmentStore(environ))
    client, decisions, _ = build(jev(), credentials=chain)
    with pytest.raises(CredentialError):
        await decisions.decide(REQUEST)
    environ["TYPESAFE_API_KEY"] = KEY
    assert (await decisions.decide(REQUEST)).noul("is_urgent").noul > 0
    await client.aclose()


async def test_a_missing_key_is_said_before_anything_is_sent(jev: Any, build: Any) -> None:
    client, decisions, seat = build(jev(), credentials=Chain(EnvironmentStore({})))
    with pytest.raises(CredentialError, match="TYPESAFE_API_KEY") as caught:
        await decisions.decide(REQUEST)
    assert not caught.value.sent
    assert [outcome.kind for outcome in seat.permits[0].outcomes] == [OutcomeKind.UNSENT]
    await client.aclose()


async def test_a_server_of_ones_own_needs_no_key(jev: Any, build: Any) -> None:
    client, decisions, _ = build(jev("auth-rejects-header", key=None), credential=None)
    response = await decisions.decide(REQUEST)
    assert response.served_model == "jevcompat-mock-0.1"
    assert response.request_id == "req_mock"
    await client.aclose()


@pytest.mark.parametrize("suffix", ["/", "/v1", "/v1/"])
async def test_the_base_url_may_end_as_people_write_it(jev: Any, build: Any, suffix: str) -> None:
    client, decisions, _ = build(jev() + suffix)
    assert await decisions.decide(REQUEST)
    await client.aclose()


@pytest.mark.parametrize(
    ("fault", "entry", "status", "why"),
    [
        ("wrong-route", {}, 404, "No route"),
        ("reject-jev-latest", {}, 404, "Model not served: jev-latest"),
        ("error-flat", {"wire_model_id": "jev-99"}, 400, "Unknown model: jev-99"),
        ("forbid-extra", {"provider_options": {"extra": 1}}, 422, "body.extra: extra_forbidden"),
        ("validation-400", {"provider_options": {"questions": {}}}, 400, "at least 1 item"),
    ],
)
async def test_a_bad_request_is_named(jev: Any, build: Any, fault: str, entry: Any, status: int, why: str) -> None:
    client, decisions, seat = build(jev(fault), entry=entry)
    with pytest.raises(InvalidRequestError, match=why) as caught:
        await decisions.decide(REQUEST)
    assert caught.value.status == status
    assert not caught.value.retryable
    assert seat.records[0].cost == 0
    await client.aclose()


async def test_a_busy_server_asks_to_wait(jev: Any, build: Any) -> None:
    client, decisions, seat = build(jev(busy_every=1))
    with pytest.raises(RateLimitedError) as caught:
        await decisions.decide(REQUEST)
    assert caught.value.retry_after_s == 0.0
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.RATE_LIMITED
    await client.aclose()


# Against a server on a script.


@dataclass
class Scripted:
    url: str = ""
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False  # close the connection in the middle of the body
    hang: threading.Event | None = None
    arrived: threading.Event = field(default_factory=threading.Event)
    seen: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Scripted]:
    script = Scripted()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            script.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            script.arrived.set()
            if script.hang is not None:
                script.hang.wait(10)
            self.send_response(script.status)
            for name, value in script.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(script.body) + (100 if script.cut else 0)))
            self.end_headers()
            self.wfile.write(script.body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script.url = f"http://127.0.0.1:{listening.server_address[1]}"
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield script
    if script.hang is not None:
        script.hang.set()
    listening.shutdown()
    listening.server_close()
    thread.join(5)


ASK = DecisionRequest(STATE, {"q": Noul.of("Is it?")})


async def test_what_is_sent(server: Scripted, build: Any) -> None:
    server.body = json.dumps(GOOD).encode()
    server.headers = {"x-typesafe-request-id": "req-7"}
    client, decisions, seat = build(server.url, entry={"provider_options": {"priority": "low"}})
    response = await decisions.decide(ASK)
    path, headers, body = server.seen[0]
    assert path == "/v1/systemone"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["content-type"] == "application/json"
    assert body == {
        "model": "jev-latest",
        "state": STATE,
        "questions": {"q": {"type": "noul", "instructions": "Is it?"}},
        "priority": "low",
    }
    assert (response.noul("q").noul, response.request_id, response.usage.input_tokens) == (0.7, "req-7", 9)
    assert seat.records[0].request_id == "req-7"
    await client.aclose()


@pytest.mark.parametrize(
    ("status", "detail", "error", "kind"),
    [
        (400, {"error_type": "api_usage_error", "message": "nope"}, InvalidRequestError, OutcomeKind.REJECTED),
        (400, "plain words", InvalidRequestError, OutcomeKind.REJECTED),
        (401, {"error_type": "authentication_error", "message": "no"}, CredentialError, OutcomeKind.REJECTED),
        (403, "forbidden", CredentialError, OutcomeKind.REJECTED),
        (402, "pay first", QuotaExhaustedError, OutcomeKind.REJECTED),
        (413, {"error_type": "too_large", "message": "too large"}, ContextWindowExceededError, OutcomeKind.REJECTED),
        (422, [{"loc": ["body"], "msg": "m", "type": "t"}], InvalidRequestError, OutcomeKind.REJECTED),
        (429, {"error_type": "rate_limit_error", "message": "slow"}, RateLimitedError, OutcomeKind.RATE_LIMITED),
        (529, {"error_type": "system_overloaded", "message": "busy"}, OverloadedError, OutcomeKind.OVERLOADED),
        (503, {"error_type": "system_overloaded", "message": "busy"}, OverloadedError, OutcomeKind.OVERLOADED),
        (500, {"error_type": "internal_error", "message": "oops"}, TransientUpstreamError, OutcomeKind.UNKNOWN),
        (502, None, TransientUpstreamError, OutcomeKind.UNKNOWN),
        (302, None, InvalidRequestError, OutcomeKind.REJECTED),
    ],
)
async def test_every_status_is_its_error(
    server: Scripted, build: Any, status: int, detail: Any, error: type[UpstreamError], kind: OutcomeKind
) -> None:
    server.status, server.body = status, json.dumps({"detail": detail}).encode()
    server.headers = {"retry-after": "3", "x-typesafe-request-id": "req-9", "location": server.url}
    client, decisions, seat = build(server.url)
    with pytest.raises(error) as caught:
        await decisions.decide(ASK)
    assert type(caught.value) is error
    assert (caught.value.status, caught.value.request_id) == (status, "req-9")
    assert len(server.seen) == 1
    assert [outcome.kind for outcome in seat.permits[0].outcomes] == [kind]
    if status == 429:
        assert caught.value.retry_after_s == seat.permits[0].outcomes[0].retry_after_s == 3.0
    if isinstance(detail, dict):
        assert caught.value.provider_code == detail["error_type"]
        assert detail["message"] in str(caught.value)
    await client.aclose()


@pytest.mark.parametrize(
    "detail",
    [
        [{"loc": ["body", "state"], "msg": "bad", "type": "t", "input": STATE}],
        "invalid input: My card 4111 1111 1111 1111 was",
        {"error_type": "bad_state", "message": f"cannot read {json.dumps(STATE)}"},
        [{"loc": ["body", STATE["ticket"]], "msg": "bad", "type": "t"}],
        {"error_type": STATE["ticket"], "message": "bad"},
        {"error_type": "4111111111111111", "message": "bad"},
        {"error_type": "bad_state", "message": "4111-1111-1111-1111 is none"},
    ],
)
async def test_the_state_is_never_quoted_in_an_error(server: Scripted, build: Any, detail: Any) -> None:
    server.status, server.body = 422, json.dumps({"detail": detail}).encode()
    client, decisions, seat = build(server.url)
    with pytest.raises(InvalidRequestError) as caught:
        await decisions.decide(ASK)
    told = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value)) + str(seat.records[0])
    assert not CARD.search(told)
    assert "HTTP 422" in str(caught.value)
    await client.aclose()


@pytest.mark.parametrize(
    ("status", "detail", "error"),
    [
        (400, "the maximum context length is 5", ContextWindowExceededError),
        (429, "You exceeded your current quota, see billing", QuotaExhaustedError),
        (503, {"error_type": "system_overloaded", "message": "busy"}, OverloadedError),
    ],
)
async def test_words_that_the_state_has_too_decide_what_an_error_is(
    server: Scripted, build: Any, status: int, detail: Any, error: type[UpstreamError]
) -> None:
    server.status, server.body = status, json.dumps({"detail": detail}).encode()
    client, decisions, _ = build(server.url)
    state = "why does it say: the maximum context length is 5, you exceeded your current quota, system_overloaded?"
    with pytest.raises(error) as caught:
        await decisions.decide(DecisionRequest(state, {"q": Noul.of("Is it?")}))
    assert type(caught.value) is error
    assert not any(words in str(caught.value) for words in ("maximum context", "current quota"))
    assert caught.value.provider_code is None
    await client.aclose()


@pytest.mark.parametrize(
    "answers",
    [
        '{"q": {"type": "noul", "noul": 0.9}, "q": {"type": "noul", "noul": 0.1}}',
        '{"q": {"type": "noul", "noul": 0.9, "noul": 0.1}}',
    ],
)
async def test_two_answers_to_one_question_are_none(server: Scripted, build: Any, answers: str) -> None:
    server.body = f'{{"answers": {answers}}}'.encode()
    client, decisions, _ = build(server.url)
    with pytest.raises(MalformedResponseError, match="one name twice"):
        await decisions.decide(ASK)
    await client.aclose()


@pytest.mark.parametrize("body", [b"<html>sign in</html>", b"", b"[]", b'"text"', b"\xff\xfe", b"[" * 100_000, b"{}"])
async def test_b63_what_is_no_answer_under_200_is_malformed(server: Scripted, build: Any, body: bytes) -> None:
    server.body, server.headers = body, {"content-type": "text/html"}
    client, decisions, seat = build(server.url)
    with pytest.raises(MalformedResponseError) as caught:
        await decisions.decide(ASK)
    assert caught.value.retryable
    assert len(server.seen) == 1
    assert seat.records[0].outcome == "malformed_response"
    await client.aclose()


async def test_a_cut_answer_is_transient_and_may_have_been_billed(server: Scripted, build: Any) -> None:
    server.body, server.cut = json.dumps(GOOD).encode(), True
    client, decisions, seat = build(server.url)
    with pytest.raises(TransientUpstreamError, match="closed the connection") as caught:
        await decisions.decide(ASK)
    assert caught.value.sent
    assert caught.value.__context__ is None  # the transport's error holds the request and its key
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.UNKNOWN
    assert seat.records[0].usage.estimated
    await client.aclose()


async def test_a_server_that_is_not_there_owes_nothing(build: Any) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    client, decisions, seat = build(url)
    with pytest.raises(TransientUpstreamError, match="could not be reached") as caught:
        await decisions.decide(ASK)
    assert not caught.value.sent
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.UNSENT
    assert seat.records[0].cost == 0
    await client.aclose()


async def test_an_attempt_has_its_time(server: Scripted, build: Any) -> None:
    server.hang = threading.Event()
    client, decisions, seat = build(server.url, entry={"timeout_s": 0.2})
    with pytest.raises(TransientUpstreamError):
        await decisions.decide(ASK)
    assert seat.permits[0].outcomes[0].kind is OutcomeKind.UNKNOWN
    await client.aclose()


async def test_a_cancelled_call_is_abandoned_and_recorded(server: Scripted, build: Any) -> None:
    server.hang = threading.Event()
    client, decisions, seat = build(server.url)
    task = asyncio.create_task(decisions.decide(ASK))
    assert await asyncio.to_thread(server.arrived.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [outcome.kind for outcome in seat.permits[0].outcomes] == [OutcomeKind.ABANDONED]
    assert [record.outcome for record in seat.records] == ["cancelled"]
    await client.aclose()


async def test_a_url_that_is_none_is_one_clear_error(build: Any) -> None:
    client, decisions, seat = build("not a url")
    with pytest.raises(InterlockError):
        await decisions.decide(ASK)
    assert len(seat.records) == 1
    await client.aclose()
