"""A client on a reservation and a book that cost nothing, so that only the client is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from decimal import Decimal
from typing import Any

from interlock.admission.outcome import CallOutcome
from interlock.catalog.entry import ModelEntry, Prices, ProviderSettings
from interlock.catalog.spec import ModelBinding, ModelSpec
from interlock.catalog.tokens import TokenEstimator
from interlock.catalog.words import Grade
from interlock.clients.abstract import AbstractLLMClient
from interlock.clients.client import LLMClient
from interlock.clients.environment import ClientEnvironment
from interlock.clients.record import CallRecord
from interlock.clients.registry import provider_class
from interlock.credentials import Chain, EnvironmentStore, Redactor

from .workload import KEY, MAX_TOKENS, MODEL

#: The provider key that speaks a wire.
KEYS = {"anthropic": "anthropic-direct", "openai": "openai-chat-completions"}


class Permit:
    unmetered = undeclared = False

    def sent(self) -> None: ...

    def close(self, outcome: CallOutcome) -> None: ...


class Seat:
    def __init__(self, binding: ModelBinding) -> None:
        self.binding = binding

    def permit(self, *, input_tokens: int, output_tokens: int, continuation: bool = False) -> Permit:
        return Permit()

    def record(self, record: CallRecord) -> Awaitable[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


def client(wire: str, url: str, estimator: TokenEstimator | None = None, **settings: Any
           ) -> tuple[AbstractLLMClient, LLMClient]:  # fmt: skip
    """The client of a provider, and one bound to a seat."""
    key = KEYS[wire]
    entry = ModelEntry(
        id=MODEL, grade=Grade.SMALL, provider=key, wire_model_id=MODEL, context_window=100_000, base_url=url,
        max_output_tokens=4_000, prices=Prices(input=Decimal(3), output=Decimal(15)),
    )  # fmt: skip
    redactor = Redactor()
    environment = ClientEnvironment(
        settings=ProviderSettings(credential="bench-key", **settings),
        credentials=Chain(EnvironmentStore({"BENCH_KEY": KEY}), redactor=redactor),
        redactor=redactor,
        estimator=estimator or TokenEstimator(),
    )
    template: AbstractLLMClient = provider_class(key)(entry, environment)
    binding = ModelBinding(spec=ModelSpec(MODEL), entry=entry, input_tokens=200, output_tokens=MAX_TOKENS)
    return template, template.bound(binding, Seat(binding))
