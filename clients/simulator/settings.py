"""What one provider is set to, and what it holds while it serves: buckets, script, log, cache."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .buckets import Meter, PublishedLimits
from .caching import PromptCache
from .exchange import Answer, Ask
from .log import RequestLog, SeenRequest
from .script import Script
from .wires.wire import WireError

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

    def check_key(self, key: str | None) -> None:
        """Any key will do, unless the provider was told which it knows."""
        if key is None:
            raise WireError(401, "No API key was provided.", code="invalid_api_key")
        if self.keys is not None and key not in self.keys:
            raise WireError(401, "The API key is not valid.", code="invalid_api_key")

    def unknown_model(self, wire: str, model: str) -> WireError:
        if wire == "anthropic":
            return WireError(404, f"model: {model}")
        message = f"The model `{model}` does not exist or you do not have access to it."
        return WireError(404, message, code="model_not_found")

    def check_window(self, wire: str, ask: Ask, input_tokens: int) -> None:
        window = self.context_window
        if window is None or input_tokens <= window:
            return
        if wire == "anthropic":
            raise WireError(400, f"prompt is too long: {input_tokens} tokens > {window} maximum")
        raise WireError(
            400,
            f"This model's maximum context length is {window} tokens. However, your messages resulted in "
            f"{input_tokens} tokens. Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
        )
