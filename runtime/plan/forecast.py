"""From a workload to its forecast: many possible runs, each simulated, and what each limit costs. Values, no IO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

from .levels import Sample
from .limits import LINES, Limit, doubled, limits_of, served, situation_of
from .simulate import BEGINS_AT, Simulated, Situation, simulate
from .sizes import Draws, Sizes, recorded_shares

if TYPE_CHECKING:
    from interlock.catalog import Catalog

    from .workload import PlannedLine, Workload

#: Jobs simulated for one forecast, over all its runs: what a quarter of a minute of one core is enough for.
BUDGET_JOBS = 200_000
#: Lines below which a run is never cut, however many jobs they have.
FEWEST_LINES = 200
#: Runs that a doubled limit is tried on.
DOUBLED_RUNS = 5
#: Calls in one table with arrivals, which has to be simulated whole.
MOST_ARRIVING = 1_000_000

N = TypeVar("N", float, Decimal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One number over all runs: in one of ten it is below `p10`, in one of ten above `p90`."""

    p10: float
    p50: float
    p90: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        found = sorted(values)
        return cls(p10=_quantile(found, 0.1), p50=_quantile(found, 0.5), p90=_quantile(found, 0.9))


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitForecast:
    """`short` is the share of the time for which somebody stood short of it; `saved_s` what twice as much would save
    (None: nobody was ever short of it, so nothing)."""

    limit: Limit
    short: float
    saved_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelForecast:
    """Means over the runs. `cost` is None without a price."""

    model: str
    pool: str
    calls: float
    input_tokens: float
    output_tokens: float
    cost: Decimal | None
    currency: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Seconds from the beginning to the last answer, money by currency, and what held it.

    `worst` is every call once at its largest: its estimated input and its whole output limit. `simulated` lines of
    `total` were run through admission `runs` times; where that is fewer, the rest goes on at the pace found there.
    """

    total: int
    calls: int
    read: int
    simulated: int
    runs: int
    what: str
    finish_s: Spread
    cost: Mapping[str, Spread]
    worst: Mapping[str, Decimal]
    unpriced: int
    limits: tuple[LimitForecast, ...]
    models: tuple[ModelForecast, ...]
    failed: float
    refused: Mapping[str, float]
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = field(default=(), repr=False)

    @property
    def binding(self) -> LimitForecast | None:
        """The limit that holds it: the one whose double saves the most, or, where none does, the one that somebody is
        most often short of."""
        held = [each for each in self.limits if each.short > 0 or (each.saved_s or 0.0) > 0]
        return max(held, key=lambda each: (each.saved_s or 0.0, each.short), default=None)


def forecast(
    workload: Workload,
    catalog: Catalog,
    sizes: Sizes,
    *,
    runs: int = 20,
    seed: int = 0,
    begins_at: datetime = BEGINS_AT,
    serves: float = 1.0,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Forecast:
    """Simulate it `runs` times. The same arguments give the same forecast. `serves` is the share of the published rates
    that the providers really serve, once that has been found out. `progress` hears of each run that is done,
    and of how many there will be at the least."""
    situation = served(situation_of(workload, catalog, begins_at), serves)
    shares = recorded_shares(sizes, [line.jobs for line in workload.lines])
    scale = _Scale.of(workload, runs)
    limits = tuple(limits_of(situation))
    tried = range(seed, seed + min(runs, DOUBLED_RUNS))
    done, of = 0, runs + sum(limit.field == LINES for limit in limits) * len(tried)

    def run(at: Situation, number: int, *, levels: bool = False) -> _Run:
        nonlocal done
        found = scale.run(at, lambda: Draws(sizes, shares, number), number, levels=levels)
        done += 1
        progress(done, max(of, done))
        return found

    found = [run(situation, number, levels=number == seed) for number in range(seed, seed + runs)]
    told: list[LimitForecast] = []
    short = {limit.account: _mean([each.short(limit.account) for each in found]) for limit in limits}
    of = runs + sum(limit.field == LINES or short[limit.account] > 0 for limit in limits) * len(tried)
    for limit in limits:
        saved_s: float | None = None
        if limit.field == LINES or short[limit.account] > 0:
            other = doubled(situation, limit)
            pairs = zip(found, [run(other, number) for number in tried], strict=False)
            saved_s = Spread.of([before.finish_s - after.finish_s for before, after in pairs]).p50
        told.append(LimitForecast(limit=limit, short=short[limit.account], saved_s=saved_s))
    return _put_together(workload, situation, scale, found, told)


@dataclass(frozen=True, slots=True)
class _Run:
    """One simulated run, brought to the whole workload's size."""

    simulated: Simulated
    finish_s: float
    scale: float
    of_model: Mapping[str, float]

    def cost(self) -> dict[str, float]:
        """By currency."""
        total: Counter[str] = Counter()
        for name, used in self.simulated.used.items():
            if used.cost and used.entry.prices is not None:
                total[used.entry.prices.currency] += float(used.cost) * self.of_model[name]  # type: ignore[assignment]
        return dict(total)

    def short(self, account: str) -> float:
        whole = self.simulated.finish_s
        return min(self.simulated.short_s.get(account, 0.0) / whole, 1.0) if whole else 0.0


class _Scale:
    """How much of a workload is simulated, and how the whole follows from it.

    Where it is cut, it is simulated twice, once at half the size: from half to whole the time grows as it will go on
    to grow. No run ends before the limits could have given all that it takes of them.
    """

    def __init__(self, workload: Workload, size: int) -> None:
        self.total = workload.total
        self.lines = workload.sample(size)
        self.half = workload.sample(len(self.lines) // 2) if len(self.lines) < self.total else []
        calls, planned = (
            _calls_by_model(self.lines, [1] * len(self.lines)),
            _calls_by_model(workload.lines, workload.counts),
        )
        #: How many calls of each model there are for one that is simulated.
        self.of_model = {name: planned[name] / max(calls[name], 1) for name in planned}

    @classmethod
    def of(cls, workload: Workload, runs: int) -> _Scale:
        if workload.arrives:
            return cls(workload, MOST_ARRIVING)
        jobs = sum(len(line.jobs) * count for line, count in zip(workload.lines, workload.counts, strict=True))
        each = max(jobs / max(workload.total, 1), 1.0)
        size = max(int(BUDGET_JOBS / (1.5 * (runs + 3 * DOUBLED_RUNS)) / each), FEWEST_LINES)
        return cls(workload, size)

    def run(self, situation: Situation, draws: Callable[[], Draws], number: int, *, levels: bool) -> _Run:
        whole = simulate(self.lines, situation, draws(), seed=number, levels=levels)
        if not self.half:
            return _Run(whole, whole.finish_s, 1.0, self.of_model)
        half = simulate(self.half, situation, draws(), seed=number)
        pace_s = max(whole.finish_s - half.finish_s, 0.0) / (len(self.lines) - len(self.half))
        scale = self.total / len(self.lines)
        finish_s = whole.finish_s + pace_s * (self.total - len(self.lines))
        return _Run(whole, max(finish_s, _least_s(whole, situation, self.of_model)), scale, self.of_model)


def _calls_by_model(lines: Sequence[PlannedLine], counts: Sequence[int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for line, count in zip(lines, counts, strict=True):
        for job in line.jobs:
            for call in job.calls:
                found[call.entry.id] += call.count * count
    return found


def _least_s(simulated: Simulated, situation: Situation, of_model: Mapping[str, float]) -> float:
    """Before that its limits cannot have given what `of_model` times as many calls take of them."""
    taken: Counter[str] = Counter()
    for name, used in simulated.used.items():
        pool = situation.pool_of[name]
        amounts = {
            "requests": used.calls,
            "tokens": used.input_tokens + used.output_tokens,
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens * used.entry.accounting.output_burndown,
        }
        amounts |= {f"{key}_per_day": amounts[key] for key in ("requests", "tokens")}
        for dimension, amount in amounts.items():
            taken[f"{pool}:{dimension}"] += amount * of_model[name]  # type: ignore[assignment]
    waits = [
        (taken[limit.account] - limit.capacity) / limit.rate_per_s for limit in limits_of(situation) if limit.rate_per_s
    ]
    return max([0.0, *waits])


def _put_together(
    workload: Workload, situation: Situation, scale: _Scale, runs: Sequence[_Run], limits: Sequence[LimitForecast]
) -> Forecast:
    costs = [run.cost() for run in runs]
    worst, unpriced = workload.worst()
    refused: Counter[str] = Counter()
    for run in runs:
        for words, count in run.simulated.refused.items():
            refused[words] += count * run.scale / len(runs)  # type: ignore[assignment]
    return Forecast(
        total=workload.total,
        calls=workload.calls,
        read=workload.read,
        simulated=len(scale.lines),
        runs=len(runs),
        what=workload.what,
        finish_s=Spread.of([run.finish_s for run in runs]),
        cost={name: Spread.of([cost.get(name, 0.0) for cost in costs]) for name in worst},
        worst=worst,
        unpriced=unpriced,
        limits=tuple(sorted(limits, key=lambda each: (each.saved_s or 0.0, each.short), reverse=True)),
        models=tuple(_models(workload, situation, runs)),
        failed=_mean([run.simulated.failed * run.scale for run in runs]),
        refused=dict(refused),
        notes=workload.notes,
        problems=workload.problems,
        samples=runs[0].simulated.samples,
    )


def _models(workload: Workload, situation: Situation, runs: Sequence[_Run]) -> list[ModelForecast]:
    found: list[ModelForecast] = []
    for entry in workload.entries:
        uses = [
            (run.simulated.used[entry.id], run.of_model[entry.id]) for run in runs if entry.id in run.simulated.used
        ]
        costs = [used.cost * Decimal(scale) for used, scale in uses if used.cost is not None]
        count = len(runs)
        found.append(
            ModelForecast(
                model=entry.id,
                pool=situation.pool_of[entry.id],
                calls=sum(used.calls * scale for used, scale in uses) / count,
                input_tokens=sum(used.input_tokens * scale for used, scale in uses) / count,
                output_tokens=sum(used.output_tokens * scale for used, scale in uses) / count,
                cost=sum(costs, Decimal(0)) / count if entry.prices is not None else None,
                currency=entry.prices.currency if entry.prices is not None else None,
            )
        )
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _quantile(found: Sequence[float], share: float) -> float:
    """Of sorted values, with what lies between two of them."""
    place = share * (len(found) - 1)
    low = int(place)
    high = min(low + 1, len(found) - 1)
    return found[low] + (found[high] - found[low]) * (place - low)
