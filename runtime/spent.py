"""What the requests of one job, or of one attempt, have used so far."""

from __future__ import annotations

from decimal import Decimal

from interlock.catalog.usage import Usage
from interlock.clients.record import CallRecord

_NOTHING = Usage()
_ZERO = Decimal(0)


class Spent:
    """A running sum of records. `cost` is None once a request without a price, or in a second currency, is in it."""

    __slots__ = ("_cost", "_unpriced", "currency", "requests", "usage")

    def __init__(self) -> None:
        self.requests = 0
        self.usage = _NOTHING
        self.currency: str | None = None
        self._cost = _ZERO
        self._unpriced = False

    def add(self, record: CallRecord) -> None:
        self.requests += 1
        self.usage = self.usage + record.usage
        self._add_cost(record.cost, record.currency)

    def include(self, other: Spent) -> None:
        """Add what a child has used."""
        self.requests += other.requests
        self.usage = self.usage + other.usage
        self._add_cost(other.cost, other.currency)

    def _add_cost(self, cost: Decimal | None, currency: str | None) -> None:
        if cost is None:
            self._unpriced = True
            return
        if cost and currency is not None:
            self._unpriced = self._unpriced or self.currency not in (None, currency)
            self.currency = currency
        self._cost += cost

    @property
    def cost(self) -> Decimal | None:
        return None if self._unpriced else self._cost
