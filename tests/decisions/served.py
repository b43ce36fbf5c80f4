"""Every decision provider and who answers it in the tests: one line each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from interlock.catalog.entry import ProviderSettings
from interlock.clients.registry import provider_class


@dataclass(frozen=True)
class Served:
    """A provider key and the URL of the SimulatedProvider that serves it; None: it runs in this process. `entry` and
    `options` are what the catalog says beside that."""

    key: str
    url: str | None = None
    entry: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    #: The simulated provider's name of the wire.
    wire: str = ""
    overloaded: int = 529

    def __str__(self) -> str:
        return self.id or self.key

    def client(self, make_entry: Any, make_environment: Any, provider: Any, **fields: Any) -> Any:
        settings, environment = fields.pop("settings", {}), fields.pop("environment", {})
        base_url = getattr(provider, self.url) if self.url else None
        credential = "typesafe-api-key" if self.url else None
        known = {
            "wire_model_id": "a-model" if self.url else "sparrow-decider",
            "prices": {"input": "0.5"},
            **self.entry,
        }
        entry = make_entry(self.key, **{**known, **fields})
        settings = ProviderSettings(base_url=base_url, credential=credential, options=self.options, **settings)
        return provider_class(self.key)(entry, make_environment(settings, **environment))


EVERY = (
    Served("sparrow"),
    Served("systemone-decision", "systemone_url", wire="systemone"),
    Served("openrouter-decision", "openrouter_url", wire="openrouter-decisions"),
    Served("openai-decision", "openai_url", wire="openai-decisions", overloaded=503),
    Served("logprobs-decision", "openai_url", wire="openai", overloaded=503),
    Served(
        "logprobs-decision", "openai_url", {"unsupported": {"logprobs"}}, id="logprobs-stated", wire="openai",
        overloaded=503,
    ),
)  # fmt: skip
OVER_HTTP = tuple(served for served in EVERY if served.url)
