"""What is asked of admission, and what admission tells: frozen values."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NewType

from interlock.catalog.entry import Accounting

from .accounts import Account, HeldAccount

if TYPE_CHECKING:
    from .pool import Pool

#: A place in the line. It is given once, at the first grant or the first time a job becomes a head, and brought along
#: by a job that comes back; lower goes first within a priority.
Ticket = NewType("Ticket", int)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCharge:
    """`count` calls of one size: `input_tokens` estimated, `output_tokens` the limit that will be sent.

    `key` is how a permit is asked for later (the `ModelSpec`).
    """

    key: Hashable
    pool: Pool
    accounting: Accounting
    input_tokens: int
    output_tokens: int
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Everything one job needs, granted at once or not at all.

    `priority`: higher goes first. `max_wait_s`: None waits as long as it takes; otherwise the demand is refused (or,
    with `overflow="proceed"`, sent without a reservation) when its turn does not come in time. `workflow` is what fair
    share counts by, `label` the job's name for messages. `kind` is what the calls of such jobs have in common: an
    expected output is learnt by it (None: by each call's key alone).
    """

    calls: tuple[CallCharge, ...] = ()
    held: tuple[tuple[Account | HeldAccount, int], ...] = ()
    workflow: str = ""
    priority: int = 0
    max_wait_s: float | None = None
    overflow: Literal["fail", "proceed"] = "fail"
    label: str = ""
    kind: Hashable = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a demand waits. `earliest_s` is seconds from now, None where only a release helps.

    Exact for a head (`estimate=False`) as long as nobody older, no release and no report changes it; an estimate for
    whoever stands behind one. `ahead` counts the demands that go first.
    """

    account: str | None
    lacks: float
    earliest_s: float | None
    ahead: int
    estimate: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountStatistics:
    """One account now. Amounts are in its own unit, times in seconds.

    | field                        | meaning                                                                          |
    |------------------------------|----------------------------------------------------------------------------------|
    | `level`, `capacity`, `debt`  | what could be taken (below 0: a debt, which is also told apart), and at most     |
    | `rate_per_s`                 | the published refill; None for a held account                                    |
    | `slowdown`                   | what the throttle divides that by, 1 where nothing was refused                   |
    | `held_for_s`, `closed`       | how long a hold after a 429 still lasts; whether only a probe passes             |
    | `held_back_s`                | for how long, since the start, at least one demand that was next stood short of  |
    |                              | it: the account with the largest growth is what to raise                         |
    | `waiting`, `oldest_wait_s`   | demands that name it and wait (for whichever account), and how long the oldest   |
    | `granted`, `refused`         | demands that named it and were, since the start                                  |
    | `settled`                    | calls of its pool that have ended; of a held account, jobs that gave theirs back |
    | `rate_limited`, `overloaded` | 429s and 529s of its pool                                                        |
    """

    name: str
    metered: bool
    level: float
    capacity: float
    rate_per_s: float | None
    slowdown: float
    held_back_s: float
    held_for_s: float
    closed: bool
    debt: float
    waiting: int
    oldest_wait_s: float
    granted: int
    refused: int
    settled: int
    rate_limited: int
    overloaded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionStatistics:
    """All accounts and the line as a whole. Whoever names several accounts is counted once here.

    `waiting` is now, `oldest_wait_s` how long the oldest of them has waited; the others count since the start.
    `cancelled` left before they were told; `unmetered` went by `overflow="proceed"` and are among `granted`; `settled`
    counts calls.
    """

    accounts: tuple[AccountStatistics, ...]
    waiting: int
    oldest_wait_s: float
    granted: int
    refused: int
    cancelled: int
    unmetered: int
    settled: int

    def account(self, name: str) -> AccountStatistics:
        """The account of that name; KeyError where there is none."""
        for account in self.accounts:
            if account.name == name:
                return account
        raise KeyError(name)
