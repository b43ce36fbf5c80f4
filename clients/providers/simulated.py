"""`simulated`: a provider on this machine, for demos and tests without a key.

The first client starts a `SimulatedProvider` on loopback in a thread of its own, and the last one that closes stops it;
clients with the same provider options share one. It is spoken to through the Anthropic SDK, over real HTTP. With a
`base_url` nothing is started, and whatever serves there is spoken to.

The provider's `options` in the catalog set it: `serves`, `latency_s`, `tokens_per_s`, `seed`, `headers`. The limits of
the entry's pool bind.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import httpx2

from interlock.catalog.entry import Limits, ModelEntry
from interlock.errors import ConfigurationError

from ..environment import ClientEnvironment
from ..listing import ListedModel, NoModelListError
from ..simulator import PublishedLimits, SimulatedProvider
from .anthropic_direct import AnthropicDirectClient

OPTIONS = frozenset({"serves", "latency_s", "tokens_per_s", "seed", "headers"})


class SimulatedClient(AnthropicDirectClient):
    """Anthropic's wire, spoken to a provider that runs in this process."""

    #: Without a `base_url` its provider begins and ends with this process: no level of it outlives that.
    in_this_process: ClassVar[bool] = True
    default_base_url: ClassVar[str | None] = None
    default_credential: ClassVar[str | None] = None

    def __init__(self, entry: ModelEntry, environment: ClientEnvironment) -> None:
        super().__init__(entry, environment)
        self._shared: _Shared | None = None

    @property
    def base_url(self) -> str:
        return self.entry.base_url or self.environment.settings.base_url or self.provider.anthropic_url

    @property
    def provider(self) -> SimulatedProvider:
        """The provider it speaks to, started if need be. Not there with a `base_url`."""
        if self._shared is None:
            self._shared = _Shared.join(self.environment.settings.options)
            published = _published(self.environment.limits or self.entry.limits)
            if published is not None:
                self._shared.provider.publish(self.entry.wire_model_id, published)
        return self._shared.provider

    def make_sdk(self, *, api_key: str | None, base_url: str, http: httpx2.AsyncClient, timeout: httpx2.Timeout) -> Any:
        return super().make_sdk(api_key=api_key or "simulated", base_url=base_url, http=http, timeout=timeout)

    async def list_models(self) -> Sequence[ListedModel]:
        if not (self.entry.base_url or self.environment.settings.base_url):
            raise NoModelListError(f"provider {self.entry.provider} runs in this process and serves every model")
        return await super().list_models()

    async def aclose(self) -> None:
        await super().aclose()
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.leave()


class _Shared:
    """One running provider and how many clients use it."""

    _running: ClassVar[dict[str, _Shared]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, key: str, options: dict[str, Any]) -> None:
        self._key, self._users, self._stack = key, 0, ExitStack()
        self.provider = self._stack.enter_context(SimulatedProvider(**options, keep_requests=10_000).in_thread())

    @classmethod
    def join(cls, options: dict[str, Any]) -> _Shared:
        unknown = sorted(options.keys() - OPTIONS)
        if unknown:
            known = ", ".join(sorted(OPTIONS))
            raise ConfigurationError(f"the simulated provider has no option {unknown[0]!r}; it has {known}")
        key = json.dumps(options, sort_keys=True, default=str)
        with cls._lock:
            shared = cls._running.get(key)
            if shared is None:
                shared = cls._running[key] = cls(key, options)
            shared._users += 1
            return shared

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
            del self._running[self._key]
        self._stack.close()


def _published(limits: Limits) -> PublishedLimits | None:
    rates = {name: getattr(limits, name) for name in ("rpm", "tpm", "input_tpm", "output_tpm")}
    if not any(rates.values()):
        return None
    return PublishedLimits(**rates, burst_s=limits.burst_s)
