"""Entries, environments, and the bench on which every provider of embeddings is driven: its real SDK or wire, against a
loopback provider. Adding a provider is one line in WIRES."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from interlock.admission.clock import ManualClock, SystemClock
from interlock.catalog.entry import ModelEntry, Prices, ProviderSettings
from interlock.catalog.tokens import TokenEstimator
from interlock.catalog.words import Kind
from interlock.clients.environment import ClientEnvironment
from interlock.clients.registry import provider_class
from interlock.clients.simulator import SimulatedProvider, Step
from interlock.credentials import Chain, EnvironmentStore, Redactor
from interlock.errors import OverloadedError, TransientUpstreamError, UpstreamError

SECRET = "sk-a-very-secret-key-0123456789"
WALL = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
AWS = {"credential": "test-aws", "region": "eu-west-1"}


class GoogleToken:
    """Application default credentials that need no network."""

    token, expired, quota_project_id = "ya29.a-token-of-google", False, None


def google_token(client: Any) -> None:
    client.carried._google = (GoogleToken(), "the-project")


@dataclass(frozen=True)
class Wire:
    """A provider key and how it is called. `speaks` None: it runs in this process. `answer` writes a whole response of
    its wire from rows of numbers, and the indexes that they carry where the wire has any."""

    key: str
    speaks: str | None = None
    name: str = ""
    answer: Callable[..., Any] = lambda rows, indexes=None: None
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    entry: Mapping[str, Any] = field(default_factory=dict, hash=False)
    authorize: Callable[[Any], None] = lambda client: None
    overload: type[UpstreamError] = OverloadedError
    numbered: bool = False  # its results carry their own index
    hints: bool = True  # a 429 says how long to wait
    states_limits: bool = False  # in headers
    names_requests: bool = True
    knows_purpose: bool = True
    one_text: bool = False  # a request

    @property
    def id(self) -> str:
        return self.name or self.key


def openai_answer(rows: list[Any], indexes: list[Any] | None = None) -> Any:
    numbers = range(len(rows)) if indexes is None else indexes
    data = [{"object": "embedding", "index": at, "embedding": row} for at, row in zip(numbers, rows, strict=True)]
    return {"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 9, "total_tokens": 9}}


def titan_answer(rows: list[Any], indexes: Any = None) -> Any:
    return {"embedding": rows[0] if rows else None, "inputTextTokenCount": 9}


def cohere_answer(rows: list[Any], indexes: Any = None) -> Any:
    return {"id": "x", "response_type": "embeddings_by_type", "embeddings": {"float": rows}, "texts": []}


def gemini_answer(rows: list[Any], indexes: Any = None) -> Any:
    return {"embeddings": [{"values": row} for row in rows], "usageMetadata": {"promptTokenCount": 9}}


OPENAI = Wire(
    "openai-embeddings", "openai", answer=openai_answer, numbered=True, states_limits=True, knows_purpose=False,
    overload=TransientUpstreamError, entry={"wire_model_id": "text-embedding-3-small", "dimensions": 1536},
)  # fmt: skip
TITAN = Wire(
    "bedrock-titan-embeddings", "bedrock", answer=titan_answer, settings=AWS, hints=False, knows_purpose=False,
    one_text=True, overload=TransientUpstreamError,
    entry={"wire_model_id": "amazon.titan-embed-text-v2:0", "dimensions": 1024},
)  # fmt: skip
COHERE = Wire(
    "bedrock-cohere-embeddings", "bedrock", answer=cohere_answer, settings=AWS, hints=False,
    overload=TransientUpstreamError, entry={"wire_model_id": "cohere.embed-v4:0", "dimensions": 1536},
)  # fmt: skip
GEMINI = Wire(
    "gemini-embeddings", "gemini", answer=gemini_answer, names_requests=False, overload=TransientUpstreamError,
    entry={"wire_model_id": "gemini-embedding-001", "dimensions": 3072},
)  # fmt: skip
WIRES = (
    OPENAI,
    Wire("openai-compatible-embeddings", "openai", answer=openai_answer, numbered=True, states_limits=True,
         knows_purpose=False, overload=TransientUpstreamError, entry=OPENAI.entry),
    TITAN,
    COHERE,
    GEMINI,
    Wire("gemini-embeddings", "gemini", "vertex-embeddings", answer=gemini_answer, names_requests=False,
         overload=TransientUpstreamError, entry=GEMINI.entry, authorize=google_token,
         settings={"options": {"vertex": True}, "region": "global", "credential": None}),
    Wire("wordllama", knows_purpose=False, entry={"dimensions": 256, "requested_dimensions": None}),
)  # fmt: skip
HOSTED = tuple(wire for wire in WIRES if wire.speaks is not None)


class Bench:
    """Makes clients against one loopback provider, and closes them."""

    def __init__(self, provider: SimulatedProvider, make_seat: Any) -> None:
        self.provider, self._make_seat = provider, make_seat
        self.environ = {
            "TEST_KEY": SECRET, "TEST_AWS_ACCESS_KEY_ID": "AKIATEST", "TEST_AWS_SECRET_ACCESS_KEY": SECRET,
        }  # fmt: skip
        self._clients: list[Any] = []

    def script(self, *steps: Step) -> None:
        self.provider.script(*steps)

    @property
    def sent(self) -> dict[str, Any]:
        """The body of the last request that the provider saw."""
        return self.provider.requests[-1].body

    def template(self, wire: Wire, *, width: int = 1024, clock: Any = None, settings: Any = None, **entry: Any) -> Any:
        urls = {"openai": self.provider.openai_url, "bedrock": self.provider.bedrock_url,
                "gemini": self.provider.gemini_url}  # fmt: skip
        fields: dict[str, Any] = {
            "id": "the-model", "kind": Kind.EMBEDDINGS, "provider": wire.key, "wire_model_id": wire.key,
            "requested_dimensions": 1024, "prices": Prices(input=2), "base_url": urls.get(wire.speaks or ""),
            **wire.entry, **entry,
        }  # fmt: skip
        redactor = Redactor()
        environment = ClientEnvironment(
            settings=ProviderSettings(**{"credential": "test-key", **wire.settings, **(settings or {})}),
            credentials=Chain(EnvironmentStore(self.environ), redactor=redactor),
            redactor=redactor,
            clock=clock or SystemClock(),
            wall=lambda: WALL,
            estimator=TokenEstimator(),
            embedding_width=width,
        )
        client = provider_class(wire.key)(ModelEntry(**fields), environment)
        wire.authorize(client)
        self._clients.append(client)
        return client

    def client(self, wire: Wire, **template: Any) -> tuple[Any, Any]:
        made = self.template(wire, **template)
        seat = self._make_seat(made.entry)
        return made.bound(seat.binding, seat), seat

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()
            assert client.connections._value == client.environment.settings.max_connections, "a connection is held"


def check_books(seat: Any) -> None:
    """One permit, one outcome and one record for every attempt."""
    assert len(seat.permits) == len(seat.records)
    assert all(len(permit.outcomes) == 1 for permit in seat.permits)


@pytest.fixture
async def provider() -> AsyncIterator[SimulatedProvider]:
    async with SimulatedProvider() as running:
        yield running


@pytest.fixture
async def bench(provider: SimulatedProvider, make_seat: Any) -> AsyncIterator[Bench]:
    bench = Bench(provider, make_seat)
    yield bench
    await bench.aclose()


@pytest.fixture
def make_entry() -> Any:
    def make(provider: str = "fake", **fields: Any) -> ModelEntry:
        known = {"id": f"{provider}-entry", "kind": Kind.EMBEDDINGS, "provider": provider, "wire_model_id": provider}
        return ModelEntry(**{**known, **fields})

    return make


@pytest.fixture
def make_environment() -> Any:
    def make(settings: ProviderSettings | None = None, **fields: Any) -> ClientEnvironment:
        known = {
            "settings": settings or ProviderSettings(),
            "credentials": Chain(EnvironmentStore({})),
            "redactor": Redactor(),
            "clock": ManualClock(),
            "estimator": TokenEstimator(),
        }
        return ClientEnvironment(**{**known, **fields})

    return make
