"""Fakes, and the bench on which every chat provider is driven: its real SDK, a loopback provider, a seat with books."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from waiting import until

from interlock.admission.clock import Clock, ManualClock, SystemClock
from interlock.admission.outcome import CallOutcome, OutcomeKind
from interlock.catalog.entry import ModelEntry, Prices, ProviderSettings
from interlock.catalog.spec import ModelBinding, ModelSpec
from interlock.catalog.tokens import TokenEstimator
from interlock.catalog.words import Grade, Input
from interlock.clients.abstract import AbstractLLMClient
from interlock.clients.bound import BoundLLMClient
from interlock.clients.environment import ClientEnvironment
from interlock.clients.record import CallRecord
from interlock.clients.registry import provider_class
from interlock.clients.response import LLMResponse
from interlock.clients.simulator import SimulatedProvider, Step
from interlock.credentials import Chain, EnvironmentStore, Redactor
from interlock.errors import OverloadedError, TransientUpstreamError, UpstreamError

SECRET = "sk-a-very-secret-key-0123456789"
WALL = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@dataclass
class FakePermit:
    """Keeps what the contract of `CallPermit` says: sent before the end, closed exactly once."""

    input_tokens: int
    output_tokens: int
    unmetered: bool = False
    undeclared: bool = False
    was_sent: bool = False
    outcomes: list[CallOutcome] = field(default_factory=list)

    def sent(self) -> None:
        assert not self.outcomes, "sent after it was closed"
        assert not self.was_sent, "one permit, one request"
        self.was_sent = True

    def close(self, outcome: CallOutcome) -> None:
        self.outcomes.append(outcome)

    @property
    def outcome(self) -> CallOutcome:
        assert len(self.outcomes) == 1, f"closed {len(self.outcomes)} times"
        return self.outcomes[0]


@dataclass
class FakeSeat:
    """A reservation that never ends, and a book in memory. `commits` may hold a record's commit back."""

    binding: ModelBinding
    permits: list[FakePermit] = field(default_factory=list)
    records: list[CallRecord] = field(default_factory=list)
    commits: Callable[[], Awaitable[None]] | None = None

    def permit(self, *, input_tokens: int, output_tokens: int, continuation: bool = False) -> FakePermit:
        permit = FakePermit(input_tokens, output_tokens)
        self.permits.append(permit)
        return permit

    def record(self, record: CallRecord) -> Awaitable[None]:
        self.records.append(record)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return asyncio.ensure_future(self.commits()) if self.commits else done

    @property
    def last(self) -> CallRecord:
        return self.records[-1]

    @property
    def kinds(self) -> list[OutcomeKind]:
        return [permit.outcome.kind for permit in self.permits]

    def check_books(self) -> None:
        """One permit, one outcome and one record for every attempt."""
        assert len(self.permits) == len(self.records)
        for permit in self.permits:
            assert permit.outcome.kind is OutcomeKind.UNSENT or permit.was_sent


@dataclass(frozen=True)
class Wire:
    """A provider key, and which of the simulated provider's wires it speaks. Adding a provider is one line in WIRES."""

    key: str
    speaks: str
    name: str = ""  # where a key has several ways
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    entry: Mapping[str, Any] = field(default_factory=dict, hash=False)
    authorize: Callable[[Any], None] = lambda client: None  # what a test cannot get from outside
    overload: type[UpstreamError] = OverloadedError  # what this wire's word for it amounts to
    names_requests: bool = True  # errors carry an id
    streams_by_body: bool = True  # or by its path
    hints: bool = True  # a 429 says how long to wait
    names_model: bool = True  # an answer says which model it is of
    fetches: bool = True  # takes an image's address

    @property
    def id(self) -> str:
        return self.name or self.key

    def url(self, provider: SimulatedProvider) -> str:
        urls = {
            "anthropic": provider.anthropic_url,
            "gemini": provider.gemini_url,
            "invoke": provider.bedrock_url,
            "converse": provider.bedrock_url,
            "mantle": provider.mantle_url,
        }
        return urls.get(self.speaks, provider.openai_url)


class GoogleToken:
    """Application default credentials that need no network."""

    token, expired, quota_project_id = "ya29.a-token-of-google", False, None


def google_token(client: Any) -> None:
    client._google = (GoogleToken(), "the-project")


GEMINI = Wire("gemini", "gemini", overload=TransientUpstreamError, names_requests=False, streams_by_body=False)
AWS = {"credential": "test-aws", "region": "eu-west-1"}
WIRES = (
    Wire("anthropic-direct", "anthropic"),
    Wire("simulated", "anthropic"),
    Wire("openai-chat-completions", "openai"),
    Wire("openai-compatible", "openai"),
    Wire("openai", "responses"),
    GEMINI,
    Wire("litellm", "openai", "litellm-openai", entry={"wire_model_id": "openai/wire-model"}),
    Wire("litellm", "anthropic", "litellm-anthropic", entry={"wire_model_id": "anthropic/wire-model"}),
    Wire(
        "anthropic-bedrock", "invoke", settings=AWS, overload=TransientUpstreamError, streams_by_body=False, hints=False
    ),
    Wire("anthropic-bedrock-mantle", "mantle", settings=AWS),
    Wire(
        "bedrock-converse",
        "converse",
        settings=AWS,
        overload=TransientUpstreamError,
        streams_by_body=False,
        hints=False,
        names_model=False,
        fetches=False,
    ),
    replace(GEMINI, name="vertex", settings={"options": {"vertex": True}, "region": "global"}, authorize=google_token),
)
#: Ways of a key whose wire is another one's: the contract is enough.
ALIKE = frozenset({"simulated", "vertex", "litellm-openai", "litellm-anthropic"})
PRICES = Prices(input=Decimal(3), output=Decimal(15), cache_read=Decimal("0.3"), cache_write=Decimal("3.75"))


class Bench:
    """Makes clients against one loopback provider, and closes them."""

    def __init__(self, provider: SimulatedProvider) -> None:
        self.provider = provider
        self.environ = {
            "TEST_KEY": SECRET, "TEST_AWS_ACCESS_KEY_ID": "AKIATEST", "TEST_AWS_SECRET_ACCESS_KEY": SECRET,
        }  # fmt: skip
        self._clients: list[AbstractLLMClient] = []

    def script(self, *steps: Step) -> None:
        self.provider.script(*steps)

    @property
    def sent(self) -> dict[str, Any]:
        """The body of the last request that the provider saw."""
        return self.provider.requests[-1].body

    def template(
        self,
        wire: Wire,
        *,
        clock: Clock | None = None,
        settings: dict[str, Any] | None = None,
        keep_text: bool = False,
        estimator: TokenEstimator | None = None,
        **entry: Any,
    ) -> AbstractLLMClient:
        fields: dict[str, Any] = {
            "id": "the-model", "grade": Grade.SMALL, "provider": wire.key, "wire_model_id": "wire-model",
            "context_window": 100_000, "max_output_tokens": 4_000, "structured": "native", "prices": PRICES,
            "base_url": wire.url(self.provider), "inputs": frozenset(Input), **wire.entry,
        }  # fmt: skip
        redactor = Redactor()
        environment = ClientEnvironment(
            settings=ProviderSettings(**{"credential": "test-key", **wire.settings, **(settings or {})}),
            credentials=Chain(EnvironmentStore(self.environ), redactor=redactor),
            redactor=redactor,
            clock=clock or SystemClock(),
            wall=lambda: WALL,
            keep_text=keep_text,
            estimator=estimator,
        )
        client: AbstractLLMClient = provider_class(wire.key)(ModelEntry(**(fields | entry)), environment)
        wire.authorize(client)
        self._clients.append(client)
        return client

    def client(self, wire: Wire, *, input_tokens: int = 50, output_tokens: int = 1_000, thinking_tokens: int = 0,
               spec: ModelSpec | None = None, **template: Any) -> tuple[BoundLLMClient, FakeSeat]:  # fmt: skip
        made = self.template(wire, **template)
        binding = ModelBinding(
            spec=spec or ModelSpec("the-model"), entry=made.entry, input_tokens=input_tokens,
            output_tokens=output_tokens, thinking_tokens=thinking_tokens,
        )  # fmt: skip
        seat = FakeSeat(binding)
        return made.bound(binding, seat), seat

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()
            assert client.connections._value == client.environment.settings.max_connections, (
                "a connection is still held"
            )


async def asked(client: BoundLLMClient, conversation: Any, *, streamed: bool, **call: Any) -> LLMResponse:
    """The response, asked for whole or in pieces."""
    if streamed:
        return await client.stream_response(conversation, **call).finish()
    return await client.single_response(conversation, **call)


@pytest.fixture
async def provider() -> AsyncIterator[SimulatedProvider]:
    async with SimulatedProvider() as running:
        yield running


@pytest.fixture
async def bench(provider: SimulatedProvider) -> AsyncIterator[Bench]:
    made = Bench(provider)
    yield made
    await made.aclose()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The contract is for every key; what one wire does, only for the first way of speaking it. `vertex` differs from
    `gemini` by who signs: its answers show that."""
    if "wire" in metafunc.fixturenames:
        whole = "test_contract" in metafunc.module.__name__
        thin = "contract_answers" not in metafunc.module.__name__
        leaves = "leaving" in metafunc.module.__name__  # LiteLLM has connections of its own to give back
        wires = [wire for wire in WIRES if whole or wire.id not in ALIKE or (leaves and wire.key == "litellm")]
        wires = [wire for wire in wires if not (thin and wire.id == "vertex")]
        metafunc.parametrize("wire", wires, ids=[wire.id for wire in wires])


@pytest.fixture
def wires() -> Mapping[str, Wire]:
    """Every way of a key, by its name."""
    return {wire.id: wire for wire in WIRES}


@pytest.fixture(params=[wire for wire in WIRES if wire.speaks == "anthropic"][:1], ids=lambda wire: wire.key)
def anthropic(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


@pytest.fixture(
    params=[wire for wire in WIRES if wire.speaks == "openai" and wire.id not in ALIKE], ids=lambda wire: wire.key
)
def openai(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


@pytest.fixture
def responses() -> Wire:
    return next(wire for wire in WIRES if wire.speaks == "responses")


@pytest.fixture
def gemini() -> Wire:
    return next(wire for wire in WIRES if wire.speaks == "gemini")


@pytest.fixture(name="until")
def until_fixture() -> Callable[..., Awaitable[None]]:
    return until


@pytest.fixture
def manual() -> ManualClock:
    return ManualClock()
