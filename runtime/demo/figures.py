"""What the demo measures, and how: goodput once the first burst is over, refusals, seconds. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Protocol

from .library import Found


class Seen(Protocol):
    """A request as the provider logged it: seconds on its clock, tokens, the status it answered with."""

    @property
    def at_s(self) -> float: ...
    @property
    def status(self) -> int | None: ...
    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...


#: (capacity, rate a second) by dimension, as the provider really serves them.
Served = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way of doing the work, measured. All times are seconds; `goodput` is a share of the provider's limit."""

    done: int
    failed: int
    requests: int
    rate_limited: int
    goodput: float | None
    wall_s: float
    db_connection_s: float
    db_work_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The whole demo. `baseline` is None where it was not run."""

    interlock: Side
    cost: Decimal
    currency: str
    search: tuple[Found, ...]
    baseline: Side | None = None
    errors: Mapping[str, int] = field(default_factory=dict)

    def beside(self, baseline: Side) -> DemoReport:
        """The same with the usual way's figures."""
        return replace(self, baseline=baseline)

    def as_json(self) -> dict[str, Any]:
        """The form `interlock demo --json` prints."""
        side, other = self.interlock, self.baseline
        return {
            "jobs": side.done + side.failed,
            "failed": side.failed,
            "rate_limited": side.rate_limited,
            "goodput": _rounded(side.goodput),
            "db_connection_s": _rounded(side.db_connection_s),
            "db_work_s": _rounded(side.db_work_s),
            "wall_s": _rounded(side.wall_s),
            "cost": float(self.cost),
            "search": [
                {"module": found.module, "name": found.name, "title": found.title, "score": found.score}
                for found in self.search
            ],
            "baseline": other
            and {
                "rate_limited": other.rate_limited,
                "goodput": _rounded(other.goodput),
                "db_connection_s": _rounded(other.db_connection_s),
                "wall_s": _rounded(other.wall_s),
            },
        }


def amounts(request: Seen) -> dict[str, float]:
    """What one served request took, by dimension."""
    return {
        "requests": 1,
        "tokens": request.input_tokens + request.output_tokens,
        "input-tokens": request.input_tokens,
        "output-tokens": request.output_tokens,
    }


def goodput_after_burst(requests: Sequence[Seen], served: Served) -> float | None:
    """What was served, as a share of what the binding limit allowed, from the end of the first burst on.

    A bucket begins full, so at first more than the rate can be served. The burst of a dimension is over when what is
    left in its bucket no longer covers the largest request. From then to the last request that was served, the rate
    alone is what could be had. The dimension with the largest share is the one that binds. None where no burst ended.
    """
    accepted = sorted((seen for seen in requests if seen.status == 200), key=lambda seen: seen.at_s)
    shares = [
        share
        for dimension, (capacity, rate_per_s) in served.items()
        if (share := _share(accepted, dimension, capacity, rate_per_s)) is not None
    ]
    return max(shares, default=None)


def _share(accepted: Sequence[Seen], dimension: str, capacity: float, rate_per_s: float) -> float | None:
    taken = [(seen.at_s, amounts(seen)[dimension]) for seen in accepted]
    largest = max((amount for _, amount in taken), default=0.0)
    level, last_s = capacity, taken[0][0] if taken else 0.0
    for number, (at_s, amount) in enumerate(taken):
        level = min(capacity, level + (at_s - last_s) * rate_per_s) - amount
        last_s = at_s
        if level < largest:
            return _rest(taken[number + 1 :], since_s=at_s, rate_per_s=rate_per_s)
    return None


def _rest(taken: Sequence[tuple[float, float]], *, since_s: float, rate_per_s: float) -> float | None:
    if not taken or taken[-1][0] <= since_s:
        return None
    return sum(amount for _, amount in taken) / ((taken[-1][0] - since_s) * rate_per_s)


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)
