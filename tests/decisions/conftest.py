"""Entries, and environments with one key."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from interlock.admission.clock import ManualClock
from interlock.catalog.entry import ModelEntry, ProviderSettings
from interlock.catalog.tokens import TokenEstimator
from interlock.catalog.words import Kind
from interlock.clients.environment import ClientEnvironment
from interlock.clients.simulator import SimulatedProvider
from interlock.credentials import Chain, EnvironmentStore

KEY = "tsk-0123456789abcdef-secret"
#: The card number of the tests' states, however it is written. Of four digits a port, a hash or a time may be made.
CARD = re.compile(r"4111\D?1111")


@pytest.fixture
def make_entry() -> Any:
    def make(provider: str = "fake", **fields: Any) -> ModelEntry:
        known = {"id": f"{provider}-entry", "kind": Kind.DECISION, "provider": provider, "wire_model_id": provider}
        return ModelEntry(**{**known, **fields})

    return make


@pytest.fixture
def make_environment() -> Any:
    def make(settings: ProviderSettings | None = None, **fields: Any) -> ClientEnvironment:
        named = ("TYPESAFE_API_KEY", "OPENROUTER_API_KEY", "OPENAI_API_KEY")
        credentials = Chain(EnvironmentStore(dict.fromkeys(named, KEY)))
        known = {
            "settings": settings or ProviderSettings(),
            "credentials": credentials,
            "redactor": credentials.redactor,
            "clock": ManualClock(),
            "estimator": TokenEstimator(),
        }
        return ClientEnvironment(**{**known, **fields})

    return make


@pytest.fixture
async def provider() -> AsyncIterator[SimulatedProvider]:
    async with SimulatedProvider(keys=[KEY]) as provider:
        yield provider


@pytest.fixture
def jev() -> Iterator[Any]:
    """Start the reference server of the System One wire: `jev(*faults, key=..., **config)` gives its URL."""
    why = "jevcompat, the reference server of this wire, is not installed"
    mock = pytest.importorskip("jevcompat.mock", reason=why)
    running: list[tuple[Any, threading.Thread]] = []

    def start(*faults: str, key: str | None = KEY, **config: Any) -> str:
        server = mock.make_server(mock.MockConfig(key=key, faults=frozenset(faults), **config))
        server.socket.listen(64)  # the standard library's backlog of 5 resets the connections of a burst
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join(5)
