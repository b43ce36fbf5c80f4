"""Entries, and environments without credentials."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.admission.clock import ManualClock
from interlock.catalog.entry import ModelEntry, ProviderSettings
from interlock.catalog.tokens import TokenEstimator
from interlock.catalog.words import Kind
from interlock.clients.environment import ClientEnvironment
from interlock.credentials import Chain, EnvironmentStore, Redactor


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
