"""What one provider is set to, and what it holds while it serves: buckets, script, log, cache."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .buckets import Meter, PublishedLimits
from .caching import PromptCache
from .exchange import Answer
from .log import RequestLog, SeenRequest
from .script import Script
from .wires.wire import Wire

EVERY_MODEL = "*"


@dataclass(slots=True, kw_only=True)
class Serving:
    """`meters` are made as models are first seen; a model that `limits` does not name has those of "*"."""

    limits: Mapping[str, PublishedLimits]
    serves: float
    answer: Callable[[SeenRequest], Answer | str | Any] | None
    latency_s: float | Callable[[SeenRequest], float]
    tokens_per_s: float | None
    seed: int
    now: Callable[[], float]
    wall: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    headers: bool
    count: Callable[[str], int]
    models: tuple[str, ...] | None
    context_window: int | None
    keys: frozenset[str] | None
    log: RequestLog
    script: Script = field(default_factory=Script)
    counts: Script = field(default_factory=Script)  # of requests that only count tokens
    cache: PromptCache = field(default_factory=PromptCache)
    meters: dict[str, Meter] = field(default_factory=dict)

    def meter(self, model: str) -> Meter | None:
        found = self.meters.get(model)
        if found is None:
            limits = self.limits.get(model) or self.limits.get(EVERY_MODEL)
            if limits is None:
                return None
            found = self.meters[model] = Meter(limits, self.serves, self.now())
        return found

    def latency_of(self, entry: SeenRequest) -> float:
        return self.latency_s(entry) if callable(self.latency_s) else self.latency_s

    def check_key(self, wire: Wire, key: str | None) -> None:
        """Any key will do, unless the provider was told which it knows. Raises WireError."""
        if key is None or (self.keys is not None and key not in self.keys):
            raise wire.unauthorized(given=key is not None)

    def check_window(self, wire: Wire, input_tokens: int) -> None:
        """Raises WireError for more input than fits."""
        if self.context_window is not None and input_tokens > self.context_window:
            raise wire.too_long(input_tokens, self.context_window)
