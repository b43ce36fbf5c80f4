"""What is to be forecast: lines of jobs, each with the calls it makes and the jobs it comes after. Frozen values."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from interlock.catalog.pricing import worst_cost

if TYPE_CHECKING:
    from decimal import Decimal

    from interlock.catalog import ModelEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """`count` calls of one size, one after the other, as the job declares them.

    `output_tokens` is the limit that is sent and reserved. `expected_tokens` and `latency_s` (seconds from sending to
    the last byte) are stated by whoever wrote a table; None leaves them to the record or to the assumptions.
    """

    entry: ModelEntry
    key: Hashable
    input_tokens: int
    output_tokens: int
    count: int = 1
    expected_tokens: int | None = None
    latency_s: float | None = None

    @property
    def worst(self) -> Decimal | None:
        """The most that all of them can cost; None without a price."""
        each = worst_cost(self.entry.prices, self.input_tokens, self.output_tokens)
        return None if each is None else each * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """`after` are the places in its line of the jobs that end before it is submitted, `delay_s` seconds later; `held`
    is what it holds beside the calls, by the account's name; `kind` what its calls have in common with others."""

    name: str
    calls: tuple[PlannedCall, ...] = ()
    held: tuple[tuple[str, int], ...] = ()
    after: tuple[int, ...] = ()
    delay_s: float = 0.0
    workflow: str = ""
    priority: int = 0
    max_wait_s: float | None = None
    overflow: Literal["fail", "proceed"] = "fail"
    kind: Hashable = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLine:
    """One run of the pipeline, or one call of a table. `arrival_s` counts from the beginning."""

    jobs: tuple[PlannedJob, ...]
    arrival_s: float = 0.0

    @property
    def calls(self) -> int:
        return sum(call.count for job in self.jobs for call in job.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Everything that is to be done: each line of `lines` as often as `counts` says, in this order.

    `concurrency` is how many lines are under way at a time (None: all). `gates` are the held accounts, by name.
    `read` of the `total` lines were looked at; `notes` are what was assumed on the way, in words.
    """

    lines: Sequence[PlannedLine]
    counts: Sequence[int]
    concurrency: int | None = None
    gates: Mapping[str, int] = field(default_factory=dict)
    read: int = 0
    what: str = "line"
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def calls(self) -> int:
        return sum(line.calls * count for line, count in zip(self.lines, self.counts, strict=True))

    @property
    def arrives(self) -> bool:
        """Whether some of it comes later than at the beginning."""
        return any(line.arrival_s for line in self.lines)

    @property
    def entries(self) -> tuple[ModelEntry, ...]:
        """The models it calls, each once, in the order of their first call."""
        found = {call.entry.id: call.entry for line in self.lines for job in line.jobs for call in job.calls}
        return tuple(found.values())

    def sample(self, size: int) -> list[PlannedLine]:
        """At most about `size` lines, evenly from all of it and in its order; all of them where they are that few."""
        if self.total <= size:
            return [line for line, count in zip(self.lines, self.counts, strict=True) for _ in range(count)]
        taken: list[PlannedLine] = []
        share, owed = size / self.total, 0.5
        for line, count in zip(self.lines, self.counts, strict=True):
            owed += count * share
            taken += [line] * int(owed)
            owed -= int(owed)
        return taken

    def worst(self) -> tuple[dict[str, Decimal], int]:
        """The most it can cost by currency, each call asked once; and the number of calls without a price."""
        worst: dict[str, Decimal] = {}
        unpriced = 0
        for line, count in zip(self.lines, self.counts, strict=True):
            for call in (call for job in line.jobs for call in job.calls):
                price, prices = call.worst, call.entry.prices
                if price is None or prices is None:
                    unpriced += call.count * count
                elif price:
                    worst[prices.currency] = worst.get(prices.currency, price * 0) + price * count
        return worst, unpriced
