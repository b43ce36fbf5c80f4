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
    """One way of doing the work, measured. All times are seconds; `goodput` is a share of the provider's limit.

    `log` and `holds` (a connection taken and returned, on the monotonic clock) are what pictures are drawn from.
    """

    done: int
    failed: int
    requests: int
    rate_limited: int
    goodput: float | None
    wall_s: float
    db_connection_s: float
    db_work_s: float
    log: Sequence[Seen] = field(default=(), repr=False)
    holds: Sequence[tuple[float, float]] = field(default=(), repr=False)


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

    A bucket begins full, so at first more than its rate can be served: as much as it holds, which is the rate of
    `capacity / rate` seconds. After that long the rate alone counts, until the last request that was served. The
    dimension with the largest share is the one that binds. None for a run that ended within its burst.
    """
    accepted = sorted((seen for seen in requests if seen.status == 200), key=lambda seen: seen.at_s)
    if not accepted:
        return None
    first_s, last_s = accepted[0].at_s, accepted[-1].at_s
    shares = []
    for dimension, (capacity, rate_per_s) in served.items():
        since_s = first_s + capacity / rate_per_s
        if last_s > since_s:
            taken = sum(amounts(seen)[dimension] for seen in accepted if seen.at_s > since_s)
            shares.append(taken / ((last_s - since_s) * rate_per_s))
    return max(shares, default=None)


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)
