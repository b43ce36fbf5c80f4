"""A pool in the shell: its limiter, the gate of its concurrency, and what its calls have used so far."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING

from interlock.catalog.entry import Limits

from .accounts import Account
from .charges import Charge, start_charge
from .demand import CallCharge
from .expected import ExpectedOutput
from .gates import CountingGate
from .limiter import TokenBucketRateLimiter, rates_of
from .throttle import Throttle

if TYPE_CHECKING:
    from .sharing.link import PoolLink

#: Of one call: what a float counts exactly.
MOST_TOKENS = 1e15


class Pool:
    """What calls on one pool draw on. Made by `Admission.pool`, once per name."""

    __slots__ = (
        "_counted", "accounts", "expected", "gate", "limiter", "limits", "link", "name", "reshaped", "select",
        "settled",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        limits: Limits,
        now: float,
        wall: Callable[[], datetime] | None = None,
        link: PoolLink | None = None,
    ) -> None:
        self.name, self.limits = name, limits
        #: Where it is shared with other processes: what this one has of it.
        self.link = link
        if link is None:
            self.limiter = TokenBucketRateLimiter.of(name, limits, now, wall=wall)
        else:
            from .sharing.limiter import SharedLimiter

            self.limiter = SharedLimiter.of_link(link, limits, now, wall)
        self.gate: CountingGate | None = None
        self._counted: int | None = None  # `max_concurrent`, where only another process's catalog has it
        self.accounts: tuple[Account, ...] = ()
        #: From a charge, the counts that this pool's levels meter, in the order of `limiter.accounts`.
        self.select: Callable[[Charge], tuple[float, ...]] = tuple
        self.expected = ExpectedOutput()
        self.settled = 0
        #: Whether its accounts have ever changed, or one is a window: then a call may settle to others than it was
        #: charged on, or to another day.
        self.reshaped = False
        self._arrange()

    @property
    def throttle(self) -> Throttle:
        return self.limiter.throttle

    def update(self, limits: Limits, now: float) -> None:
        """Take over changed limits, levels carried over."""
        before = self.accounts
        self.limits, self.limiter.burst_s, self.limiter.fixed = limits, limits.burst_s, limits.fixed
        self._counted = None
        self.limiter.update(rates_of(limits), now, limits.day_resets)
        self._arrange()
        self.reshaped |= self.accounts != before

    def count_slots(self, slots: int) -> bool:
        """Of a shared pool: another process says that it has so many. False: they are counted here already."""
        if self.gate is not None:
            return False
        self._counted = slots
        self._arrange()
        self.reshaped = True
        return True

    def _arrange(self) -> None:
        slots = self._counted if self.limits.max_concurrent is None else self.limits.max_concurrent
        if slots is None:
            self.gate = None
            if self.link is not None:
                self.link.gate = None
        elif self.gate is None:
            self.gate = self._slots(f"{self.name}:concurrent", slots)
        else:
            self.gate.capacity = slots
        levels = self.limiter.accounts
        self.accounts = (*levels, self.gate) if self.gate else levels
        self.reshaped |= self.limiter.windowed
        parts = [level.part for level in levels]
        self.select = itemgetter(*parts) if len(parts) > 1 else itemgetter(slice(parts[0], parts[0] + 1))

    def _slots(self, name: str, slots: int) -> CountingGate:
        if self.link is None:
            return CountingGate(name, slots)
        from .sharing.accounts import SharedGate

        return SharedGate(name, slots, self.link)

    def charge(self, call: CallCharge, kind: Hashable = None) -> Charge:
        """What one call of this size is charged at its start; `kind` is what calls of its like have in common."""
        accounting = call.accounting
        if not (0 <= call.input_tokens <= MOST_TOKENS and 0 <= call.output_tokens <= MOST_TOKENS):
            # NaN and infinity would fill a level for good, and what no float holds end the ledger of all the others.
            raise ValueError(
                f"a call of {call.key} declares {call.input_tokens!r:.24} + {call.output_tokens!r:.24} tokens; it must "
                f"be 0 to {MOST_TOKENS:g} each"
            )
        if accounting.output == "limit":
            return start_charge(accounting, call.input_tokens, call.output_tokens)
        expected = self.expected.expect(accounting, call.key, kind, call.output_tokens)
        return start_charge(
            accounting, call.input_tokens, call.output_tokens, expected_output=self._fitting(call, expected)
        )

    def _fitting(self, call: CallCharge, expected: float) -> float:
        """Never more than the pool can ever hold: its own limit will bound it."""
        for level in self.limiter.accounts:
            if level.part == 3:
                expected = min(expected, level.capacity)
            elif level.part == 1:
                expected = min(expected, max(level.capacity - call.input_tokens, 0.0))
        return expected

    def observe_output(self, key: Hashable, kind: Hashable, output_tokens: float, seconds: float) -> None:
        """Learn from one answer that took so many seconds."""
        self.expected.observe(key, kind, output_tokens, seconds)

    def __repr__(self) -> str:
        return f"<Pool {self.name!r}>"
