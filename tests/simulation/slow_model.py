"""A slow and obvious model of admission, written from the rules and not from the code.

It keeps lists and recomputes everything from scratch. Buckets are the provider's: charged when a call is sent, given
back when it is settled, counted forwards. What may be handed out is what a bucket holds less what was granted and has
not left yet. `tests/admission/test_slow_model.py` holds the real one against it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from interlock.admission import CallCharge, Demand, Permit, Reservation, Waiting
from interlock.admission.queues import NO_TICKET
from interlock.errors import AdmissionError

CLOSE = 0.02  # tokens: rounding, and the millionths by which a grant may come early
LIMITS = {"p": {"tpm": 600, "rpm": 30}, "q": {"input_tpm": 600, "output_tpm": 300}}
GATES = {"d": 2, "g": 3}
HOLD_S = 5.0  # how long a gate is typically held


@dataclass
class Bucket:
    """A limit as its provider keeps it."""

    capacity: float
    rate: float
    at: float
    holds: float = field(init=False)
    was_full_at: float = -inf  # when something was granted of a full one

    def __post_init__(self) -> None:
        self.holds = self.capacity

    def granted(self, now: float) -> None:
        """From here on, what was reserved before and not used is nothing that is missing here."""
        if self.read(now) >= self.capacity - CLOSE / 100:
            self.was_full_at = now

    def read(self, now: float) -> float:
        self.holds = min(self.capacity, self.holds + (now - self.at) * self.rate)
        self.at = now
        return self.holds

    def add(self, now: float, amount: float) -> None:
        self.holds = min(self.capacity, self.read(now) + amount)


@dataclass(eq=False, repr=False)
class Asked:
    """One demand: what it wants of each account, and everything that has become of it."""

    demand: Demand
    wants: dict[str, float]
    number: int
    charges: list[dict[str, float]]  # of each of its calls
    ticketed: bool  # it came back with a ticket
    waiting: Waiting | None = None
    granted: list[Reservation] = field(default_factory=list)
    refused: list[AdmissionError] = field(default_factory=list)
    cancelled: bool = False
    unsent: list[dict[str, float]] = field(default_factory=list)
    permits: list[tuple[Permit, CallCharge, dict[str, float], float]] = field(default_factory=list)  # when sent

    def __repr__(self) -> str:
        return f"<{self.demand.label}>"

    @property
    def waits(self) -> bool:
        return self.waiting is not None and self.waiting.status == "waiting"

    @property
    def kind(self) -> tuple[object, ...]:
        """Those of one kind go in the order they came."""
        return tuple(self.wants), self.demand.priority, self.demand.workflow

    def went_since(self, instant: float, wants: dict[str, float]) -> bool:
        return bool(self.granted) and self.granted[0].granted_at >= instant and bool(self.wants.keys() & wants)

    @property
    def running(self) -> bool:
        return bool(self.granted) and not self.granted[0].released

    @property
    def key(self) -> tuple[int, int]:
        """Its place in the one order."""
        assert self.waiting is not None
        return -self.demand.priority, self.waiting.ticket


class Model:
    """What there is, and who may have it."""

    def __init__(self, now: float) -> None:
        self.buckets: dict[str, Bucket] = {}
        for pool, limits in LIMITS.items():
            for name, per_minute in limits.items():
                self.buckets[f"{pool}:{_dimension(name)}"] = Bucket(per_minute, per_minute / 60, now)
        self.used = dict.fromkeys(GATES, 0.0)
        self.unsent = dict.fromkeys(self.buckets, 0.0)
        self.asked: list[Asked] = []
        self.exact, self.owed = True, False

    def room(self, name: str, now: float) -> float:
        if name in self.used:
            return GATES[name] - self.used[name]
        return self.buckets[name].read(now) - self.unsent[name]

    def heads(self) -> list[Asked]:
        """The foremost of each set of accounts among those that have been looked at, the oldest first."""
        first: dict[tuple[str, ...], Asked] = {}
        for asked in self.asked:
            if asked.waits and asked.waiting is not None and asked.waiting.ticket != NO_TICKET:
                accounts = tuple(asked.wants)
                if accounts not in first or asked.key < first[accounts].key:
                    first[accounts] = asked
        return sorted(first.values(), key=lambda asked: asked.key)

    def told(self, now: float) -> str:
        """Everything, for a failure's reader."""
        rooms = {name: round(self.room(name, now), 3) for name in (*self.buckets, *self.used)}
        heads = [(head, *head.key, head.wants) for head in self.heads()]
        return f"room {rooms}, unsent {self.unsent}, heads {heads}"

    def short_of(self, wants: dict[str, float], older: list[Asked], now: float) -> str | None:
        """The first account that cannot give its part after what those older ones have set aside; None: it may go."""
        lacks: dict[int, tuple[str | None, float]] = {}
        for i, head in enumerate(older):
            account = self._short(head.wants, older[:i], lacks, now)
            goes = inf
            if account is not None and account not in self.used:
                ahead = [other for other in older[:i] if account in other.wants]
                if not any(lacks[id(other)][0] == account for other in ahead):  # else nobody can tell
                    need = sum(other.wants[account] for other in ahead) + head.wants[account]
                    bucket = self.buckets[account]
                    if need <= bucket.capacity - self.unsent[account]:
                        goes = max(now, now + (need - self.room(account, now)) / bucket.rate)
            lacks[id(head)] = account, goes
        return self._short(wants, older, lacks, now)

    def _short(
        self, wants: dict[str, float], older: list[Asked], lacks: dict[int, tuple[str | None, float]], now: float
    ) -> str | None:
        for account in sorted(wants, key=lambda name: name in self.used):
            room = self.room(account, now)
            for head in older:
                if account not in head.wants:
                    continue
                short, goes = lacks[id(head)]
                if short == account:
                    return account
                # What it has set aside of a held account binds if it goes within the time that one is typically held.
                if account not in self.used or short in self.used or goes - now <= HOLD_S:
                    room -= head.wants[account]
            if room < wants[account] - CLOSE:
                return account
        return None


def _dimension(limit: str) -> str:
    return {"tpm": "tokens", "rpm": "requests", "input_tpm": "input_tokens", "output_tpm": "output_tokens"}[limit]


def charge_of(pool: str, size: int) -> dict[str, float]:
    if pool == "p":
        return {"p:tokens": size + size // 2, "p:requests": 1}
    return {"q:input_tokens": size, "q:output_tokens": size // 2}
