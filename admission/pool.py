"""A pool in the shell: its limiter, the gate of its concurrency, and what its calls have used so far."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import itemgetter

from interlock.catalog.entry import Limits

from .accounts import Account, CountingGate
from .charges import Charge, start_charge
from .demand import CallCharge
from .limiter import TokenBucketRateLimiter, rates_of
from .throttle import Throttle

#: How many keys' outputs a pool remembers; the oldest is forgotten.
REMEMBERED = 256


class Pool:
    """What calls on one pool draw on. Made by `Admission.pool`, once per name."""

    __slots__ = ("_outputs", "accounts", "gate", "limiter", "limits", "name", "reshaped", "select", "settled")

    def __init__(self, name: str, limits: Limits, now: float) -> None:
        self.name, self.limits = name, limits
        self.limiter = TokenBucketRateLimiter.of(name, limits, now)
        self.gate: CountingGate | None = None
        self.accounts: tuple[Account, ...] = ()
        #: From a charge, the counts that this pool's levels meter, in the order of `limiter.accounts`.
        self.select: Callable[[Charge], tuple[float, ...]] = tuple
        self._outputs: dict[Hashable, tuple[int, float]] = {}
        self.settled = 0
        #: Whether its accounts have ever changed: then a call may settle to others than it was charged on.
        self.reshaped = False
        self._arrange()

    @property
    def throttle(self) -> Throttle:
        return self.limiter.throttle

    def update(self, limits: Limits, now: float) -> None:
        """Take over changed limits, levels carried over."""
        before = self.accounts
        self.limits, self.limiter.burst_s, self.limiter.fixed = limits, limits.burst_s, limits.fixed
        self.limiter.update(rates_of(limits), now)
        self._arrange()
        self.reshaped |= self.accounts != before

    def _arrange(self) -> None:
        slots = self.limits.max_concurrent
        if slots is None:
            self.gate = None
        elif self.gate is None:
            self.gate = CountingGate(f"{self.name}:concurrent", slots)
        else:
            self.gate.capacity = slots
        levels = self.limiter.accounts
        self.accounts = (*levels, self.gate) if self.gate else levels
        parts = [level.part for level in levels]
        self.select = itemgetter(*parts) if len(parts) > 1 else itemgetter(slice(parts[0], parts[0] + 1))

    def charge(self, call: CallCharge) -> Charge:
        """What one call of this size is charged at its start."""
        accounting = call.accounting
        if not (call.input_tokens >= 0 and call.output_tokens >= 0):  # NaN would fill a level for good
            raise ValueError(f"a call of {call.key} declares {call.input_tokens} + {call.output_tokens} tokens")
        if accounting.output == "expected":
            return start_charge(accounting, call.input_tokens, call.output_tokens, expected_output=self._expected(call))
        return start_charge(accounting, call.input_tokens, call.output_tokens)

    def _expected(self, call: CallCharge) -> float:
        """The running mean of what calls of this key put out; never more than the pool can ever hold."""
        seen = self._outputs.get(call.key)
        expected = seen[1] if seen is not None else float(call.output_tokens)
        for level in self.limiter.accounts:
            if level.part == 3:
                expected = min(expected, level.capacity)
            elif level.part == 1:
                expected = min(expected, max(level.capacity - call.input_tokens, 0.0))
        return expected

    def observe_output(self, key: Hashable, output_tokens: float) -> None:
        """Learn from one answer. The mean, because debts and refunds of many calls must cancel out."""
        count, mean = self._outputs.pop(key, (0, 0.0))
        count = min(count + 1, 50)
        self._outputs[key] = (count, mean + (output_tokens - mean) / count)
        if len(self._outputs) > REMEMBERED:
            del self._outputs[next(iter(self._outputs))]

    def __repr__(self) -> str:
        return f"<Pool {self.name!r}>"
