"""The limits a workload runs against, each by its account's name, and the same situation with one of them doubled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from interlock.admission import rates_of
from interlock.errors import ConfigurationError

from .simulate import BEGINS_AT, Situation

if TYPE_CHECKING:
    from interlock.catalog import Catalog
    from interlock.catalog.entry import Limits

    from .workload import Workload

#: What a level counts, and the field of `Limits` that states it.
FIELDS: Mapping[str, str] = {
    "requests": "rpm",
    "tokens": "tpm",
    "input_tokens": "input_tpm",
    "output_tokens": "output_tpm",
    "requests_per_day": "rpd",
    "tokens_per_day": "tpd",
}
CONCURRENT = "max_concurrent"
#: The name of the limit on lines under way.
LINES = "concurrency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One finite limit. `account` is what admission calls it; `pool` and `field` are where the catalog states it.

    `stated` is the number there; a metered account holds `capacity` and refills `rate_per_s`.
    """

    account: str
    pool: str | None
    field: str
    stated: float
    capacity: float
    rate_per_s: float | None = None

    @property
    def words(self) -> str:
        """`output_tpm of pool anthropic-sonnet`; `rpm of claude-haiku` where the model has a pool of its own."""
        if self.pool is not None:
            own = self.pool.removeprefix("model:")
            return f"{self.field} of {own}" if own != self.pool else f"{self.field} of pool {self.pool}"
        return "lines under way" if self.field == LINES else self.account


def situation_of(workload: Workload, catalog: Catalog, begins_at: datetime = BEGINS_AT) -> Situation:
    """What the workload runs against: the pools of the models it calls, the accounts its jobs hold."""
    pools: dict[str, Limits] = {}
    pool_of: dict[str, str] = {}
    for entry in workload.entries:
        name, limits = catalog.limits_of(entry)
        pools[name], pool_of[entry.id] = limits, name
    return Situation(
        pools=pools,
        pool_of=pool_of,
        gates=dict(workload.gates),
        concurrency=workload.concurrency,
        begins_at=begins_at,
    )


def limits_of(situation: Situation) -> Iterator[Limit]:
    """Every finite limit there is."""
    for pool, limits in situation.pools.items():
        for dimension, rate in rates_of(limits).items():
            stated = getattr(limits, FIELDS[dimension])
            yield Limit(
                account=f"{pool}:{dimension}",
                pool=pool,
                field=FIELDS[dimension],
                stated=stated,
                capacity=rate.capacity,
                rate_per_s=rate.rate_per_s,
            )
        if limits.max_concurrent is not None:
            room = limits.max_concurrent
            yield Limit(account=f"{pool}:concurrent", pool=pool, field=CONCURRENT, stated=room, capacity=room)
    for name, room in situation.gates.items():
        yield Limit(account=name, pool=None, field=CONCURRENT, stated=room, capacity=room)
    if situation.concurrency is not None:
        room = situation.concurrency
        yield Limit(account=LINES, pool=None, field=LINES, stated=room, capacity=room)


def doubled(situation: Situation, limit: Limit) -> Situation:
    """The same with that limit at twice what it is."""
    if limit.field == LINES:
        return replace(situation, concurrency=int(limit.stated) * 2)
    if limit.pool is None:
        return replace(situation, gates={**situation.gates, limit.account: int(limit.stated) * 2})
    limits = situation.pools.get(limit.pool)
    if limits is None:
        raise ConfigurationError(f"there is no pool {limit.pool!r} in what is planned")
    whole = int if limit.field == CONCURRENT else float
    changed = limits.model_copy(update={limit.field: whole(limit.stated * 2)})
    return replace(situation, pools={**situation.pools, limit.pool: changed})


def served(situation: Situation, share: float) -> Situation:
    """Where providers serve only that share of the rates they publish. What may be taken at once stays the same, and a
    day's limit is a day's limit."""
    return replace(situation, pools={name: _slower(limits, share) for name, limits in situation.pools.items()})


def _slower(limits: Limits, share: float) -> Limits:
    rates = {name: getattr(limits, name) for name in ("rpm", "tpm", "input_tpm", "output_tpm")}
    slower = {name: rate * share for name, rate in rates.items() if rate is not None}
    return limits.model_copy(update={**slower, "burst_s": limits.burst_s / share})
