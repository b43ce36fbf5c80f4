"""Money is admitted too: cost caps, a gate of its own before the line.

An ask names the caps it falls under (its run's, the deployment's) and its worst price. It is refused only when spent
plus its ask would pass a cap; when only what siblings hold stands in the way, it waits. Nothing running is ever cut.

Asks that name the same caps go in the order they came. On one cap, an ask that is short of it keeps everybody younger
from it, so a dear ask is not starved by cheap ones; a cap that it is not short of it leaves alone, so a run at the end
of its own cap does not stop the others under the deployment's. A settlement looks at the oldest ask short of each cap
it touches, not at all that wait.

`SpendGate` decides at once and holds no Task or Future; callbacks come from the running loop, never from inside a call.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

from interlock.errors import AdmissionError, SpendCapExceededError

from .delivery import Delivery

ZERO = Decimal(0)
WAITING, HELD, SETTLED, RELEASED, REFUSED = "waiting", "held", "settled", "released", "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """At most `amount` of `currency` may be spent under this name."""

    name: str
    amount: Decimal
    currency: str = "USD"

    def __post_init__(self) -> None:
        if not self.amount.is_finite() or self.amount < 0:
            raise ValueError(f"cap {self.name!r}: the amount must be finite and not negative, not {self.amount}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapStatistics:
    """One cap now. `estimated` is the part of `spent` whose price was never reported."""

    cap: Cap
    spent: Decimal
    held: Decimal
    estimated: Decimal
    waiting: int


class _Purse:
    """What stands against one cap. `short` are the groups whose first ask waits for it, oldest first."""

    __slots__ = ("cap", "estimated", "held", "short", "spent", "waiting")

    def __init__(self, cap: Cap, spent: Decimal) -> None:
        self.cap, self.spent, self.held, self.estimated = cap, spent, ZERO, ZERO
        self.short: list[tuple[int, _Asks]] = []
        self.waiting = 0


class _Asks:
    """The waiting asks of one set of caps, the dead among them dropped when met.

    The first is never dead, and stands in the `short` list of the cap it lacks.
    """

    __slots__ = ("dead", "lacks", "purses", "queue")

    def __init__(self, purses: tuple[_Purse, ...]) -> None:
        self.purses = purses
        self.queue: deque[SpendHold] = deque()
        self.lacks: _Purse | None = None
        self.dead = 0


class SpendHold:
    """One ask and, once granted, what it holds. The first of `settle` and `release` counts."""

    __slots__ = ("_asks", "_gate", "_on_grant", "_on_refuse", "ask", "currency", "error", "number", "state")

    def __init__(
        self,
        gate: SpendGate,
        asks: _Asks,
        ask: Decimal,
        currency: str,
        number: int,
        on_grant: Callable[[SpendHold], None],
        on_refuse: Callable[[AdmissionError], None],
    ) -> None:
        self._gate, self._asks, self.ask, self.currency, self.number = gate, asks, ask, currency, number
        self._on_grant: Callable[[SpendHold], None] | None = on_grant
        self._on_refuse: Callable[[AdmissionError], None] | None = on_refuse
        self.state = WAITING
        self.error: SpendCapExceededError | None = None

    def settle(self, actual: Decimal | None) -> None:
        """The call cost `actual`; None, or what is no price: the whole ask is counted, as an estimate."""
        if self.state == HELD:
            self.state = SETTLED
            known = actual if actual is not None and actual.is_finite() and actual >= 0 else None
            self._gate._settle(self, self.ask if known is None else known, estimated=known is None)

    def release(self) -> None:
        """Nothing was spent; or, if it still waits, it is no longer wanted and no callback comes."""
        self._on_grant = self._on_refuse = None
        if self.state == HELD:
            self.state = RELEASED
            self._gate._settle(self, ZERO, estimated=False)
        elif self.state == WAITING:
            self.state = RELEASED
            self._gate._leave(self)

    def deliver(self) -> None:
        """Tell whoever asked, once."""
        grant, refuse = self._on_grant, self._on_refuse
        self._on_grant = self._on_refuse = None
        if self.error is not None:
            if refuse is not None:
                refuse(self.error)
        elif grant is not None:
            try:
                grant(self)
            except BaseException:
                self.release()
                raise


class SpendGate:
    """All cost caps of a process."""

    def __init__(self) -> None:
        self._purses: dict[str, _Purse] = {}
        self._asks: dict[tuple[str, ...], _Asks] = {}
        self._delivery = Delivery()
        self._numbers = 0

    # Caps.

    def add(self, cap: Cap, *, spent: Decimal = ZERO) -> None:
        """Set a cap, with what a run has spent before it was resumed. A cap of that name keeps its books."""
        purse = self._purses.get(cap.name)
        if purse is None:
            self._purses[cap.name] = _Purse(cap, spent)
            return
        if purse.cap.currency != cap.currency:
            raise ValueError(f"cap {cap.name!r} is in {purse.cap.currency}; it cannot become {cap.currency}")
        purse.cap = cap
        self._look((purse,))

    def remove(self, name: str) -> None:
        """Forget a cap whose run is over. ValueError while somebody waits for it; what is still held settles alone."""
        purse = self._purses.get(name)
        if purse is None:
            return
        if purse.waiting:
            raise ValueError(f"cap {name!r} still has {purse.waiting} waiting")
        del self._purses[name]
        for key in [key for key in self._asks if name in key]:
            del self._asks[key]

    def statistics(self) -> tuple[CapStatistics, ...]:
        """Frozen values of every cap."""
        return tuple(
            CapStatistics(cap=p.cap, spent=p.spent, held=p.held, estimated=p.estimated, waiting=p.waiting)
            for p in self._purses.values()
        )

    def spent(self, name: str) -> Decimal:
        """What has been spent under a cap; KeyError if there is none of that name."""
        return self._purses[name].spent

    # Asks.

    def submit(
        self,
        cap_names: Iterable[str],
        ask: Decimal,
        currency: str,
        on_grant: Callable[[SpendHold], None],
        on_refuse: Callable[[AdmissionError], None],
    ) -> SpendHold:
        """Hold `ask` (the worst price) under all these caps, now or when siblings have settled.

        Raises at once: SpendCapExceededError when spent and the ask pass a cap, AdmissionError when a cap is in
        another currency, KeyError for a cap that was never added. Otherwise one callback comes later.
        """
        if not ask.is_finite() or ask < 0:
            raise ValueError(f"an ask must be finite and not negative, not {ask}")
        key = tuple(dict.fromkeys(cap_names))
        asks = self._asks.get(key)
        if asks is None:
            asks = self._asks[key] = _Asks(tuple([self._purses[name] for name in key]))
        for purse in asks.purses:
            if purse.cap.currency != currency:
                raise AdmissionError(
                    f"the cost cap {purse.cap.name!r} is in {purse.cap.currency}, but this call is priced in "
                    f"{currency}, which cannot be counted against it; nothing was sent"
                )
        self._numbers += 1
        hold = SpendHold(self, asks, ask, currency, self._numbers, on_grant, on_refuse)
        error = self._over(hold)
        if error is not None:
            raise error
        lacks = None if asks.queue else self._lacks(hold)
        if not asks.queue and lacks is None:
            self._grant(hold)
        else:
            for purse in asks.purses:
                purse.waiting += 1
            asks.queue.append(hold)
            if lacks is not None:
                self._park(asks, lacks)
        return hold

    @staticmethod
    def _over(hold: SpendHold) -> SpendCapExceededError | None:
        for purse in hold._asks.purses:
            if purse.spent + hold.ask > purse.cap.amount:
                cap = purse.cap
                return SpendCapExceededError(
                    f"the cost cap {cap.name!r} is {cap.amount:f} {cap.currency}: {purse.spent:f} is spent, "
                    f"{purse.held:f} is held by calls under way, and this call may cost {hold.ask:f}; nothing was sent",
                    cap=str(cap.amount),
                    spent=str(purse.spent),
                    held=str(purse.held),
                    ask=str(hold.ask),
                    currency=cap.currency,
                    name=cap.name,
                )
        return None

    @staticmethod
    def _lacks(hold: SpendHold) -> _Purse | None:
        """The first cap without room for it, or with somebody older short of it."""
        for purse in hold._asks.purses:
            if purse.short and purse.short[0][0] < hold.number:
                return purse
            if purse.spent + purse.held + hold.ask > purse.cap.amount:
                return purse
        return None

    @staticmethod
    def _park(asks: _Asks, lacks: _Purse) -> None:
        asks.lacks = lacks
        insort(lacks.short, (asks.queue[0].number, asks), key=lambda entry: entry[0])

    @staticmethod
    def _unpark(asks: _Asks) -> _Purse:
        purse, asks.lacks = asks.lacks, None
        assert purse is not None
        purse.short = [entry for entry in purse.short if entry[1] is not asks]
        return purse

    def _grant(self, hold: SpendHold) -> None:
        for purse in hold._asks.purses:
            purse.held += hold.ask
        hold.state = HELD
        self._delivery.put(hold)

    def _settle(self, hold: SpendHold, actual: Decimal, *, estimated: bool) -> None:
        for purse in hold._asks.purses:
            purse.held -= hold.ask
            purse.spent += actual
            if estimated:
                purse.estimated += actual
        self._look(hold._asks.purses)

    def _leave(self, hold: SpendHold) -> None:
        asks = hold._asks
        first = asks.queue[0] is hold
        for purse in asks.purses:
            purse.waiting -= 1
        if not first:
            asks.dead += 1
            if asks.dead > 32 and asks.dead * 2 > len(asks.queue):
                asks.queue = deque([waiting for waiting in asks.queue if waiting.state == WAITING])
                asks.dead = 0
            return
        freed = self._unpark(asks)
        asks.queue.popleft()
        self._next(asks)
        self._look((freed,))

    def _next(self, asks: _Asks) -> None:
        """Look at the first of these asks, and on while they are decided; the first that is not is parked."""
        while asks.queue:
            hold = asks.queue[0]
            if hold.state != WAITING:
                asks.queue.popleft()
                asks.dead -= 1
                continue
            hold.error = self._over(hold)
            lacks = None if hold.error else self._lacks(hold)
            if lacks is not None:
                self._park(asks, lacks)
                break
            asks.queue.popleft()
            for purse in asks.purses:
                purse.waiting -= 1
            if hold.error is not None:
                hold.state = REFUSED
                self._delivery.put(hold)
            else:
                self._grant(hold)

    def _look(self, purses: Iterable[_Purse]) -> None:
        """Room may have come on these caps: the oldest that is short of each may go, and then the next."""
        look = list(purses)
        while look:
            purse = look.pop()
            if not purse.short:
                continue
            asks = purse.short[0][1]
            first = asks.queue[0]
            if self._over(first) is None and self._lacks(first) is purse:
                continue
            self._unpark(asks)
            self._next(asks)
            look.append(purse)
