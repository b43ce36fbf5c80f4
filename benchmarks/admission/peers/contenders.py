"""Who takes part: what each is installed with, which adapter speaks for it, and what it cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_SDK = "anthropic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """`packages` go into an environment of its own; the first is the one whose version is stated.

    `cannot` says what of the published limits it has no words for; `retries`, who re-sends a refused call. `hungry`:
    with hundreds of callers it uses most of a core.
    """

    name: str
    title: str
    adapter: str
    packages: tuple[str, ...]
    retries: str
    limits: str = "requests and tokens"
    cannot: str | None = None
    hungry: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def package(self) -> str:
        return self.packages[0]

    @property
    def environment(self) -> str:
        """Contenders with the same packages share one."""
        return "sdk" if self.packages == (_SDK,) else self.package


_CALLER = "the caller: after retry-after, through the limiter again, without end"

CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        Contender(
            name="interlock", title="Interlock", adapter="interlock", packages=("interlock", _SDK), retries="its own, 3"
        ),
        Contender(
            name="token-throttle",
            title="token-throttle",
            adapter="token_throttle",
            packages=("token-throttle", _SDK),
            retries=_CALLER,
        ),
        Contender(
            name="async-batch-llm",
            title="async-batch-llm",
            adapter="async_batch_llm",
            packages=("async-batch-llm", _SDK),
            retries="its own: 20 after a 429, 2 otherwise, with a cooldown for everybody",
        ),
        Contender(
            name="infermesh",
            title="infermesh",
            adapter="infermesh",
            packages=("infermesh", "litellm"),
            hungry=True,
            retries="its own, 3",
        ),
        Contender(
            name="aiolimiter",
            title="aiolimiter",
            adapter="aiolimiter",
            packages=("aiolimiter", _SDK),
            retries=_CALLER,
            cannot="it cannot give back what was reserved and not used, so it is told the mean answer",
        ),
        Contender(
            name="pyrate-limiter",
            title="pyrate-limiter",
            adapter="pyrate_limiter",
            packages=("pyrate-limiter", _SDK),
            retries=_CALLER,
            cannot="it cannot give back what was reserved and not used, so it is told the mean answer",
        ),
        Contender(
            name="langchain-core",
            title="langchain-core's InMemoryRateLimiter",
            adapter="langchain_core",
            packages=("langchain-core", _SDK),
            retries=_CALLER,
            limits="requests",
            cannot="it has no tokens: it is told the requests a minute alone, as its documentation says",
        ),
        Contender(
            name="sdk",
            hungry=True,
            title="the SDK, 2 retries (its default)",
            adapter="bare_sdk",
            packages=(_SDK,),
            retries="its own, 2",
            limits="none",
            cannot="it is told no limit at all",
        ),
        Contender(
            name="sdk-20",
            title="the SDK, 20 retries",
            adapter="bare_sdk",
            packages=(_SDK,),
            retries="its own, 20",
            limits="none",
            cannot="it is told no limit at all",
            options={"max_retries": 20},
        ),
    )
}
