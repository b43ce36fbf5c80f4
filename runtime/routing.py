"""Which models are passed over just now, so that a call is bound, priced and reserved on its backup instead.

Three things let a model be passed over: its breaker (`clients.breaker`), a pool that its provider has closed for more
than a minute, and, for one job, two strikes: it has failed that job twice. None of them makes a call impossible. Where
no backup is left the call goes to the model after all, and the throttle paces it.

Nothing is kept for a model that has not failed; `troubled` False is all that an untroubled call looks at.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from interlock.catalog.picker import PassedOver
from interlock.clients.breaker import FAILURE_CODES, QUOTA_CODE, SUCCESS_CODE, Breaker, BreakerState, BreakerStatistics

if TYPE_CHECKING:
    from interlock.admission import Clock, Pool
    from interlock.catalog import ModelEntry
    from interlock.decisions.kept import KeptParts

log = logging.getLogger("interlock.runtime")

#: So often may one model fail one job before the job moves on.
STRIKES = 2


class Strikes(dict[str, int]):
    """How often each model has failed one job."""

    def add(self, model: str, code: str) -> None:
        """An account without money is out at once; what is not the provider's own failure is no strike."""
        if code == QUOTA_CODE:
            self[model] = STRIKES
        elif code in FAILURE_CODES:
            self[model] = self.get(model, 0) + 1

    def end(self, model: str) -> bool:
        """Whether this was the last of several models that were tried: the chain is not begun again."""
        return len(self) > 1 and self.get(model, 0) >= STRIKES


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose call is to be bound: who would be a probe, which models have failed it, and what parts of its decisions
    need not be asked again."""

    owner: object | None = None
    strikes: Mapping[str, int] = field(default_factory=dict)
    kept: KeptParts | None = None


NOBODY = Caller()


class Routing:
    """One per Runtime, on the thread of its event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._breakers: dict[Hashable, tuple[str, Breaker]] = {}  # by model; by account where its money is gone
        self._closed: dict[str, Pool] = {}
        self._probes: dict[object, list[Breaker]] = {}

    @property
    def troubled(self) -> bool:
        """Whether anything might be passed over."""
        return bool(self._breakers or self._closed)

    def why(self, entry: ModelEntry, caller: Caller = NOBODY) -> PassedOver | None:
        """Why this caller's call should not go to this entry now, or None."""
        now = self._clock.now()
        if caller.strikes.get(entry.id, 0) >= STRIKES:
            return PassedOver("it has failed this job twice")
        pool = self._closed.get(entry.pool)
        if pool is not None:
            if pool.throttle.closed(now):
                return PassedOver(f"its provider has closed it for {pool.throttle.closed_until - now:.0f} s more")
            del self._closed[entry.pool]
        for key in (entry.id, _account(entry)):
            name, breaker = self._breakers.get(key, ("", None))
            if breaker is not None and not breaker.passes(now, caller.owner):
                return PassedOver(f"{name} fails: its breaker is {breaker.state(now).value.replace('_', ' ')}")
        return None

    def take_probes(self, owner: object, entry: ModelEntry) -> None:
        """`owner` goes to this entry: where its breaker is half open, as its probe."""
        now = self._clock.now()
        for key in (entry.id, _account(entry)):
            _, breaker = self._breakers.get(key, ("", None))
            if breaker is not None and breaker.take_probe(now, owner):
                mine = self._probes.setdefault(owner, [])
                if breaker not in mine:
                    mine.append(breaker)

    def give_back(self, owner: object) -> None:
        """`owner`'s attempt is over, or it will not be made."""
        if self._probes:
            for breaker in self._probes.pop(owner, ()):
                breaker.give_back(owner)

    def heard(self, entry: ModelEntry, code: str, pool: Pool) -> bool:
        """A request to this entry has ended with the word `code` of its record. Returns whether that closed its pool:
        then those who wait there may be better off elsewhere."""
        now = self._clock.now()
        key: Hashable = _account(entry) if code == QUOTA_CODE else entry.id
        if code in FAILURE_CODES or code == QUOTA_CODE:
            self._hear(key, entry, code, now)
        elif code == SUCCESS_CODE and self._breakers:
            for known in (entry.id, _account(entry)):
                if known in self._breakers:
                    self._hear(known, entry, code, now)
        if not pool.throttle.closed(now):
            return False
        fresh = pool.name not in self._closed
        self._closed[pool.name] = pool
        return fresh

    def _hear(self, key: Hashable, entry: ModelEntry, code: str, now: float) -> None:
        name, breaker = self._breakers.setdefault(key, (_name(key, entry), Breaker()))
        changed, state = breaker.heard(now, code), breaker.state(now)
        if changed and state is BreakerState.OPEN:
            log.warning(
                "%s is passed over for %.0f s after %s; its calls go to its fallbacks, where it has any",
                name, breaker.opens_at - now, code,
            )  # fmt: skip
        elif changed:
            log.info("%s serves again", name)
        if state is BreakerState.CLOSED and code == SUCCESS_CODE:
            del self._breakers[key]

    def statistics(self) -> tuple[BreakerStatistics, ...]:
        """Of every model and account that has failed and not yet recovered."""
        now = self._clock.now()
        return tuple([breaker.statistics(name, now) for name, breaker in self._breakers.values()])


def _account(entry: ModelEntry) -> tuple[str, str | None, str | None]:
    return entry.provider, entry.base_url, entry.credential


def _name(key: Hashable, entry: ModelEntry) -> str:
    return f"model {entry.id}" if key == entry.id else f"the account of {entry.credential or entry.provider}"
