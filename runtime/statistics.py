"""What a Runtime has done so far, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from interlock.catalog.usage import Usage

from .state import JobState

if TYPE_CHECKING:
    from interlock.admission import AdmissionStatistics
    from interlock.clients.breaker import BreakerStatistics

    from .store.rows import CallRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStatistics:
    """`live` counts the jobs that have not ended, pipelines included; the other counts are since the Runtime opened.

    `usage` and `cost` (by currency) add up every recorded request; `unpriced` counts those without a known cost.
    `waited_s` is the time all attempts stood in the line together, seconds; `waits_s` the same by account. `breakers`
    are of the models and accounts that have failed and not yet recovered. `replayed` counts the steps that were read
    back from the journal, `again` those that ran although something of them was known, by the reason (docs/journal.md).
    """

    admission: AdmissionStatistics
    submitted: int
    live: int
    succeeded: int
    failed: int
    cancelled: int
    reruns: int
    replayed: int
    again: Mapping[str, int]
    requests: int
    outcomes: Mapping[str, int]
    usage: Usage
    cost: Mapping[str, Decimal]
    unpriced: int
    undeclared: int
    unmetered: int
    waited_s: float
    waits_s: Mapping[str, float]
    breakers: tuple[BreakerStatistics, ...] = ()

    @property
    def rate_limited(self) -> int:
        """Requests that were answered with a 429."""
        return self.outcomes.get("llm_rate_limited", 0)

    @property
    def overloaded(self) -> int:
        """Requests that were answered with a 529."""
        return self.outcomes.get("llm_overloaded", 0)


@dataclass(slots=True)
class Counts:
    """The running figures behind the statistics."""

    submitted: int = 0
    reruns: int = 0
    replayed: int = 0
    requests: int = 0
    unpriced: int = 0
    undeclared: int = 0
    unmetered: int = 0
    waited_s: float = 0.0
    usage: Usage = field(default_factory=Usage)
    again: dict[str, int] = field(default_factory=dict)
    ended: dict[JobState, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    cost: dict[str, Decimal] = field(default_factory=dict)
    waits_s: dict[str, float] = field(default_factory=dict)

    def end(self, state: JobState) -> None:
        self.ended[state] = self.ended.get(state, 0) + 1

    def read_back(self) -> None:
        self.replayed += 1

    def repeat(self, why: str) -> None:
        self.again[why] = self.again.get(why, 0) + 1

    def add(self, row: CallRow) -> None:
        record = row.record
        self.requests += 1
        self.undeclared += record.undeclared
        self.unmetered += record.unmetered
        self.outcomes[record.outcome] = self.outcomes.get(record.outcome, 0) + 1
        self.usage = self.usage + record.usage
        if record.cost is None:
            self.unpriced += 1
        elif record.currency is not None:
            self.cost[record.currency] = self.cost.get(record.currency, Decimal(0)) + record.cost
        if row.call == 1:  # a wait is the attempt's, however many calls it makes
            self.waited_s += row.waited_s
            for account, seconds in row.waited.items():
                self.waits_s[account] = self.waits_s.get(account, 0.0) + seconds

    def frozen(
        self, admission: AdmissionStatistics, breakers: tuple[BreakerStatistics, ...], live: int
    ) -> RuntimeStatistics:
        return RuntimeStatistics(
            admission=admission,
            submitted=self.submitted,
            live=live,
            succeeded=self.ended.get(JobState.SUCCEEDED, 0),
            failed=self.ended.get(JobState.FAILED, 0),
            cancelled=self.ended.get(JobState.CANCELLED, 0),
            reruns=self.reruns,
            replayed=self.replayed,
            again=dict(self.again),
            requests=self.requests,
            outcomes=dict(self.outcomes),
            usage=self.usage,
            cost=dict(self.cost),
            unpriced=self.unpriced,
            undeclared=self.undeclared,
            unmetered=self.unmetered,
            waited_s=self.waited_s,
            waits_s=dict(self.waits_s),
            breakers=breakers,
        )
