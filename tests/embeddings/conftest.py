"""A seat that books what the template does with it, and environments without credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

import pytest

from interlock.admission.clock import ManualClock
from interlock.admission.outcome import CallOutcome
from interlock.catalog.entry import ModelEntry, ProviderSettings
from interlock.catalog.spec import ModelBinding, ModelSpec
from interlock.catalog.tokens import TokenEstimator
from interlock.catalog.words import Kind
from interlock.clients.environment import ClientEnvironment
from interlock.clients.record import CallRecord
from interlock.credentials import Chain, EnvironmentStore, Redactor


@dataclass
class BookedPermit:
    input_tokens: int
    output_tokens: int
    unmetered: bool = False
    undeclared: bool = False
    sends: int = 0
    outcomes: list[CallOutcome] = field(default_factory=list)

    def sent(self) -> None:
        self.sends += 1

    def close(self, outcome: CallOutcome) -> None:
        self.outcomes.append(outcome)


@dataclass
class BookedSeat:
    binding: ModelBinding
    permits: list[BookedPermit] = field(default_factory=list)
    records: list[CallRecord] = field(default_factory=list)

    def permit(self, *, input_tokens: int, output_tokens: int) -> BookedPermit:
        self.permits.append(BookedPermit(input_tokens, output_tokens))
        return self.permits[-1]

    def record(self, record: CallRecord) -> Awaitable[None]:
        self.records.append(record)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


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


@pytest.fixture
def make_seat() -> Any:
    def make(entry: ModelEntry) -> BookedSeat:
        spec = ModelSpec(kind=entry.kind)
        return BookedSeat(ModelBinding(spec=spec, entry=entry, input_tokens=100, output_tokens=0))

    return make
