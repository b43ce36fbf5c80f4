"""PoolLink: what one process has of one shared pool, and what it has to tell the ledger of it. Pure but for `kick`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING

from ..accounts import EPS
from ..charges import Charge
from ..ledger.message import MOST_ASKS, PoolState, Settle, Signal, SignalKind

if TYPE_CHECKING:
    from ..accounts import Account
    from .accounts import SharedGate
    from .limiter import SharedLimiter


class PoolLink:
    """`credit` (by part of a `Charge`) and `slots` have been granted and not been taken by anybody here yet.

    `loose` are the parts that no level here takes: the ledger may have a limit for them all the same (another process's
    catalog has it), so whoever goes takes them too. `ended` are slots that came back. `window` is how many asks are
    worth sending: it follows how many are granted. `kick` says that there is something to tell or to ask.
    """

    __slots__ = (
        "_back", "_day", "_eased", "_kick", "_left", "_sent", "_signals", "credit", "ended", "gate", "limiter", "loose",
        "name", "slots", "window",
    )  # fmt: skip

    def __init__(self, name: str, kick: Callable[[PoolLink, bool], None]) -> None:
        self.name, self._kick = name, kick
        self.limiter: SharedLimiter | None = None
        self.credit = [0.0, 0.0, 0.0, 0.0]
        self.loose: tuple[int, ...] = ()
        self.slots = self.ended = 0
        self.gate: SharedGate | None = None
        self.window = MOST_ASKS
        self._signals: list[Signal] = []
        self._clear()

    def _clear(self) -> None:
        self._back, self._day, self._eased, self._sent, self._left = ([0.0, 0.0, 0.0, 0.0] for _ in range(5))

    def _returns(self, amounts: Sequence[float]) -> None:
        """To the minute's limits and the day's alike."""
        _add(self._back, amounts)
        _add(self._day, amounts)

    def kick(self) -> None:
        """Somebody here wants of it."""
        self._kick(self, True)

    @property
    def accounts(self) -> tuple[Account, ...]:
        levels = () if self.limiter is None else self.limiter.accounts
        return levels if self.gate is None else (*levels, self.gate)

    def slots_ended(self, slots: int) -> None:
        self.ended += slots
        self._kick(self, False)

    # What becomes of what was granted.

    def took(self, charge: Charge, calls: int) -> None:
        """Somebody goes: with what its levels took, what they do not know."""
        for part in self.loose:
            self.credit[part] -= calls * charge[part]

    def left(self, charge: Charge, *, sent: bool) -> None:
        """It leaves for the provider (`sent`), or the provider has taken it, or it will never be sent."""
        _add(self._sent if sent else self._left, charge)
        self._kick(self, False)

    def unused(self, charge: Charge, calls: int) -> None:
        """Granted to somebody here who has gone."""
        for _ in range(calls):
            _add(self._left, charge)
            self._returns(charge)
        self._kick(self, False)

    def owe(self, more: Charge) -> None:
        """Used beyond what was reserved, known before the call has ended."""
        self._returns([-n for n in more])
        self._kick(self, False)

    def settle(self, taken: Charge, used: Charge, sent_at: float, *, drained: bool, grows: bool) -> None:
        """A call has ended: see `Settling.settle`, whose rules these are."""
        backs = [a - b for a, b in zip(taken, used, strict=True)]
        days, limiter = list(backs), self.limiter
        assert limiter is not None
        if sent_at != inf:
            for level in limiter.shared:
                of_it, part = days if level.per_day else backs, level.part
                lost = sent_at < level.opened_at or (level.was_full_at > sent_at and not grows)
                if lost and of_it[part] > 0:
                    of_it[part] = 0.0
        if drained:
            _add(self._eased, [max(back, 0.0) for back in backs])
            backs = [min(back, 0.0) for back in backs]
        _add(self._back, backs)
        _add(self._day, days)
        self._kick(self, False)

    # What the ledger is told, and what it says.

    def signal(self, signal: Signal) -> None:
        self._signals.append(signal)
        self._kick(self, signal.kind is not SignalKind.SUCCEEDED)

    @property
    def has_news(self) -> bool:
        """Whether there is anything to tell but asks."""
        sums = (self.credit, self._back, self._day, self._eased, self._sent, self._left)
        return bool(self._signals or self.slots or self.ended or any(map(_any, sums)))

    def collect(self) -> tuple[tuple[Signal, ...], Settle | None]:
        """All there is to tell. What is left of the credit goes back with it."""
        signals, self._signals = tuple(self._signals), []
        spare, spare_slots = Charge(*self.credit), self.slots
        self.credit, self.slots = [0.0, 0.0, 0.0, 0.0], 0
        self._returns(spare)
        _add(self._left, spare)
        settle = Settle(
            pool=self.name,
            back=Charge(*self._back),
            eased=Charge(*self._eased),
            sent=Charge(*self._sent),
            left=Charge(*self._left),
            slots=self.ended + spare_slots,
            day=Charge(*self._day),
        )
        self.ended = 0
        self._clear()
        amounts = (settle.back, settle.day, settle.eased, settle.sent, settle.left)
        return signals, settle if settle.slots or any(map(_any, amounts)) else None

    def granted(self, charge: Charge, slots: int) -> None:
        _add(self.credit, charge)
        self.slots += slots

    def answered(self, asked: int, granted: int) -> None:
        """Of the asks that named this pool."""
        self.window = min(2 * self.window, MOST_ASKS) if granted == asked else max(2 * granted, 2)

    def heard(self, state: PoolState, now: float) -> None:
        if self.gate is not None and state.slots is not None:
            self.gate.capacity = state.slots[0]
        if self.limiter is not None:
            self.limiter.heard(state, now)


def _any(amounts: Sequence[float]) -> bool:
    """Whether they are more than the rounding of sums."""
    return any(n > EPS or n < -EPS for n in amounts)


def _add(total: list[float], more: Sequence[float]) -> None:
    for part, n in enumerate(more):
        if n:
            total[part] += n
