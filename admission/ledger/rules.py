"""The rules of the shared ledger. Pure: rows in, rows changed, the reply out; the time is an argument.

One message after the other is applied to the rows of the pools it touches, and nothing else happens to them meanwhile
(the ledger's lock). So what is written here is all that two processes can do to each other.

Order in a message
    Signals, settles, then the asks in their order. What comes back can be asked for at once.

An ask
    needs all its pools. In each, its charge must fit below what older claims of other owners leave: nothing of a limit
    that an older claim is short of, what the claim does not need of the others. `max_concurrent` is one more limit,
    its use the sum over the owners' rows. The first demand after a hold passes on credit, as in a single process.

A claim
    is the first ask of an owner that was refused in a pool: (priority, since when, what). Older and higher goes first.
    It stands for as long as it is asked again and lapses `LAPSE_S` after its own fit, so a process that has gone deaf
    stops nobody for long. Where a demand of several pools is short in one only, its other pools stay open: what it
    needs there is set aside.

A share
    Where others have claims too, a message takes at most its part of the level, or its first ask if that is more: the
    owner that speaks first after a long hold does not take all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from interlock.errors import InterlockError

from ..accounts import EPS
from ..levels import TRANSIT_PART, TRANSIT_S
from . import cold
from .message import Ask, Message, Part, Settle, Signal
from .rows import OPEN, RATE, WINDOW, Claim, LevelRow, PoolBook, PoolRow, TotalRow

#: A claim that its owner does not ask for again is dropped so long after it would have fitted, in seconds.
LAPSE_S = 2.0
#: An ask that fits but is not its owner's turn is told to come again after so many seconds.
SOON_S = 0.005


class UnknownPoolError(KeyError, InterlockError):
    """A message names a pool that nobody has registered."""

    code = "unknown_pool"


def exchange(
    books: Mapping[str, PoolBook],
    message: Message,
    now: float,
    *,
    transit_s: float = TRANSIT_S,
    given: Collection[int] | None = None,
) -> tuple[list[int], list[float]]:
    """Apply `message` to `books`, which has every pool it touches. Returns what was granted and the pools' states.

    The states are flat numbers, as `wire.py` reads them. `given`: exactly these asks were granted once already, and are
    taken whatever there is. UnknownPoolError leaves everything as it was.
    """
    names = message.pools()
    for name in names:
        if name not in books:
            raise UnknownPoolError(f"no pool {name!r} is registered with this ledger")
    now = max(now, *[books[name].pool.clock for name in names]) if names else now
    _prepare(books, names, message.signals, now)
    for settle in message.settles:
        book = books[settle.pool]
        _settle(book.pool, _own(book, message.fence), settle, now, transit_s)
    desks = {name: Desk(books[name], message.fence, now) for name in names}
    granted: list[int]
    if given is not None:
        granted = sorted(given)
        for place in granted:
            for part in message.asks[place].parts:
                desks[part.pool].take(part)
    elif _all(desks, message.asks):
        granted = list(range(len(message.asks)))
    else:
        granted = [place for place, ask in enumerate(message.asks) if _ask(desks, ask)]
    states: list[float] = []
    for name in names:
        states += desks[name].close()
    return granted, states


def _prepare(books: Mapping[str, PoolBook], names: Iterable[str], signals: Sequence[Signal], now: float) -> None:
    by_pool: dict[str, list[Signal]] = {}
    for signal in signals:
        by_pool.setdefault(signal.pool, []).append(signal)
    for name in names:
        book = books[name]
        book.pool.clock = now
        if name in by_pool:
            cold.told(book.pool, by_pool[name], now)
        elif now >= book.pool.look_at:
            cold.refreshed(book.pool, now)


def _own(book: PoolBook, fence: int) -> TotalRow:
    total = book.totals.get(fence)
    if total is None:
        total = book.totals[fence] = TotalRow()
    return total


# What has become of grants.


def _settle(pool: PoolRow, own: TotalRow, settle: Settle, now: float, transit_s: float) -> None:
    sent = [min(max(n, 0.0), have) for n, have in zip(settle.sent, own.unsent, strict=True)]
    after = [have - n for have, n in zip(own.unsent, sent, strict=True)]
    left = [min(max(n, 0.0), have) for n, have in zip(settle.left, after, strict=True)]
    own.unsent = [have - n for have, n in zip(after, left, strict=True)]
    own.slots = max(own.slots - settle.slots, 0)
    for level in pool.levels:
        if level.kind == OPEN:
            continue
        part = level.part
        if sent[part] > 0:
            _left(level, now + min(transit_s, TRANSIT_PART * level.capacity / level.published), sent[part])
        if left[part] > 0:
            _left(level, now, left[part])
        if level.per_day:
            _give(level, settle.day[part], now)
        else:
            _give(level, settle.back[part], now)
            _ease(level, settle.eased[part], now)


def _left(level: LevelRow, at: float, amount: float) -> None:
    """It reaches the provider at `at` (or never will): what was full begins to refill then."""
    if level.kind == RATE:
        level.at = max(level.at, at + level.unsent / level.rate)
    level.unsent = max(level.unsent - amount, 0.0)


def _give(level: LevelRow, back: float, now: float) -> None:
    if level.kind == WINDOW:
        if back < 0 or not level.over:
            level.at = max(level.at - back, level.unsent)
    elif back < 0:
        owed_from = max(now, level.held_until) + level.unsent / level.rate
        level.at = max(level.at, owed_from) - back / level.rate
    elif back > 0:
        level.at -= back / level.rate


def _ease(level: LevelRow, eased: float, now: float) -> None:
    if eased > 0:
        _give(level, min(eased, max(-level.free(now), 0.0)), now)


def given_up(pool: PoolRow, unsent: Sequence[float], now: float) -> bool:
    """An owner has died: what it was granted and had not sent counts as spent, and refills. Its slots go with its row.

    Returns whether the pool has changed.
    """
    now, changed = max(now, pool.clock), False
    for level in pool.levels:
        amount = unsent[level.part]
        if amount > 0 and level.kind != OPEN:
            _left(level, now, amount)
            changed = True
    return changed


# What is asked.


class Desk:
    """One pool while one message is looked at. The last of each list of amounts is `max_concurrent`.

    `room` is what is left to take, `start` what it was at first, `taken` what was granted since.
    """

    def __init__(self, book: PoolBook, fence: int, now: float) -> None:
        self.pool, self.fence, self.now = book.pool, fence, now
        self.own = _own(book, fence)
        alive = [(fence, total) for fence, total in book.totals.items() if total.claim is not None]
        #: Claims of others, in their order.
        self.claims = sorted(
            [
                (-claim.priority, claim.since, f, claim)
                for f, total in alive
                if f != fence and (claim := _live(total, now))
            ],
            key=lambda entry: entry[:3],
        )
        self.claim = _live(self.own, now)
        self.out = sum(total.slots for total in book.totals.values())
        self.room = self._room()
        self.start, self.taken = list(self.room), [0.0] * len(self.room)
        self.closed = self.granted = False
        self.refused: Claim | None = None
        self._place: tuple[int, float] | None = None
        self._aside: list[float] = []

    def _room(self) -> list[float]:
        pool = self.pool
        room = [level.room(self.now) for level in pool.levels]
        room.append(inf if pool.slots is None else float(pool.slots - self.out))
        return room

    def needs(self, charge: Sequence[float], slots: int, count: int = 1) -> list[float]:
        """What `count` calls of that charge together take of each limit."""
        needs = [level.need(charge, count) for level in self.pool.levels]
        needs.append(float(slots))
        return needs

    def since(self, ask: Ask) -> float:
        """Since when the ledger knows that this is what the owner waits for."""
        claim = self.claim
        if claim is not None and claim.key == ask.key and claim.priority == ask.priority:
            return claim.since
        return self.now

    def older(self, priority: int, since: float) -> list[Claim]:
        return [claim for *place, claim in self.claims if place < [-priority, since, self.fence]]

    def aside(self, ask: Ask) -> list[float]:
        """Per limit, what older claims of others keep: what they need, and all of it where they are short."""
        place = (ask.priority, self.since(ask))
        if place != self._place:
            self._place = place
            self._aside = aside = [0.0] * len(self.room)
            for claim in self.older(*place):
                for i, n in enumerate(self.needs(claim.charge, claim.slots)):
                    short = n > 0 and self.room[i] - aside[i] - n + EPS < 0
                    aside[i] = inf if short else aside[i] + n
        return self._aside

    def fits(self, ask: Ask, part: Part) -> bool:
        aside, share = self.aside(ask), 1 + len(self.claims)
        for i, n in enumerate(self.needs(part.charge, part.slots)):
            if n <= 0:
                continue
            if self.room[i] - aside[i] - n + EPS < 0 and (aside[i] or not self._owed(i, n)):
                return False
            if self.granted and share > 1 and self.taken[i] + n > self.start[i] / share + EPS:
                return False
        return True

    def _owed(self, i: int, need: float) -> bool:
        """Whether the first after a hold may pass on credit."""
        levels = self.pool.levels
        if i == len(levels):
            return False
        level = levels[i]
        return level.owed and need <= level.capacity and self.now >= level.held_until

    def never(self, part: Part) -> bool:
        """Larger than the pool can ever hold: refused, and no claim."""
        pool = self.pool
        if pool.slots is not None and part.slots > pool.slots:
            return True
        return any(level.need(part.charge) > level.capacity + EPS for level in pool.levels)

    @property
    def plain(self) -> bool:
        """Nobody else has a claim, and nothing is owed: what is there can be taken in any order."""
        return not self.claims and not any(level.owed for level in self.pool.levels)

    def holds(self, sums: tuple[Sequence[float], int], count: int) -> bool:
        """Whether all of it fits, of `count` asks together."""
        return all(room - n + EPS >= 0 for room, n in zip(self.room, self.needs(*sums, count), strict=True) if n > 0)

    def take(self, part: Part) -> None:
        """Grant it; the first after a hold lets the throttle know."""
        self.take_all(part.charge, part.slots, 1)
        if any(level.owed for level in self.pool.levels):
            self._book()
            cold.passed(self.pool, self.now)
            self.room = self._room()
            self._place = None

    def take_all(self, charge: Sequence[float], slots: int, count: int) -> None:
        for i, n in enumerate(self.needs(charge, slots, count)):
            self.room[i] -= n
            self.taken[i] += n
        own = self.own
        own.unsent = [a + b for a, b in zip(own.unsent, charge, strict=True)]
        own.slots += slots
        own.granted += count
        self.out += slots
        self.granted = True

    def set_aside(self, ask: Ask, part: Part, *, short: bool) -> None:
        """It was refused here, or in another of its pools while it fits here."""
        if self.refused is None:
            since = self.since(ask)
            self.refused = Claim(ask.priority, since, ask.key, tuple(part.charge), part.slots, inf)
        if short:
            self.closed = True
            return
        for i, n in enumerate(self.needs(part.charge, part.slots)):
            self.room[i] -= n

    def _book(self) -> None:
        """Write what was taken into the levels."""
        now = self.now
        for level, n in zip(self.pool.levels, self.taken[:-1], strict=True):
            if n <= 0:
                continue
            if level.kind == OPEN:
                if level.at >= 1:
                    level.at -= n
                level.mark = now + 5.0
                continue
            level.unsent += n
            if level.kind == WINDOW:
                level.at += n
                continue
            if level.at <= now:
                level.at = level.mark = now
            level.at += n / level.rate
        self.taken = [0.0] * len(self.taken)

    def close(self) -> list[float]:
        """The message is over here. Returns the pool's state."""
        self._book()
        fit_s, claim = -1.0, self.refused
        if claim is not None:
            fit_s = max(self._fit(claim) - self.now, SOON_S)
            claim.lapses_at = self.now + LAPSE_S + (0.0 if fit_s == inf else fit_s)
        self.own.claim = claim
        return state(self.pool, self.now, self.out, fit_s, len(self.claims))

    def _fit(self, claim: Claim) -> float:
        """When it fits after all older ones, if nobody gives anything back."""
        now, older = self.now, self.older(claim.priority, claim.since)
        needs = self.needs(claim.charge, claim.slots)
        for other in older:
            needs = [a + b for a, b in zip(needs, self.needs(other.charge, other.slots), strict=True)]
        if self.pool.slots is not None and claim.slots and needs[-1] > self.pool.slots - self.out:
            return inf
        return max(
            [now, *[self._fits_at(level, n, not older) for level, n in zip(self.pool.levels, needs[:-1], strict=True)]]
        )

    def _fits_at(self, level: LevelRow, need: float, first: bool) -> float:
        now = self.now
        if need <= 0:
            return now
        if first and level.owed:
            return level.held_until
        if level.kind == RATE:
            full_at = max(level.at, now + level.unsent / level.rate)
            return max(full_at - (level.capacity - need) / level.rate, level.held_until)
        if level.kind == WINDOW:
            return max(now if need <= level.capacity - level.at else level.mark, level.held_until)
        return max(level.mark if level.at < 1 else now, level.held_until)


def _live(total: TotalRow, now: float) -> Claim | None:
    claim = total.claim
    return claim if claim is not None and claim.lapses_at >= now else None


def _all(desks: Mapping[str, Desk], asks: Sequence[Ask]) -> bool:
    """Grant everything at once if there is enough of it and nobody else wants it: mostly so, and many times faster."""
    wanted: dict[str, list[Part]] = {}
    for ask in asks:
        if len(ask.parts) != 1:
            return False
        part = ask.parts[0]
        if part.pool in wanted:
            wanted[part.pool].append(part)
        else:
            wanted[part.pool] = [part]
    whole = [(desks[name], parts, _sum(parts)) for name, parts in wanted.items()]
    if not all(desk.plain and desk.holds(sums, len(parts)) for desk, parts, sums in whole):
        return False
    for desk, parts, (charge, slots) in whole:
        desk.take_all(charge, slots, len(parts))
    return True


def _sum(parts: Sequence[Part]) -> tuple[list[float], int]:
    return [sum(counts) for counts in zip(*[part.charge for part in parts], strict=True)], sum(
        [part.slots for part in parts]
    )


def _ask(desks: Mapping[str, Desk], ask: Ask) -> bool:
    """Grant all of it, or none of it and leave a claim."""
    parts = [(desks[part.pool], part) for part in ask.parts]
    if any(desk.closed or desk.never(part) for desk, part in parts):
        return False
    short = [not desk.fits(ask, part) for desk, part in parts]
    if any(short):
        for (desk, part), here in zip(parts, short, strict=True):
            desk.set_aside(ask, part, short=here)
        return False
    for desk, part in parts:
        desk.take(part)
    return True


def state(pool: PoolRow, now: float, out: int, fit_s: float, claims: int) -> list[float]:
    """A pool as flat numbers: see `wire.py`."""
    flat = [
        pool.version,
        pool.epoch,
        max(max((level.held_until for level in pool.levels), default=-inf) - now, 0.0),
        max(pool.closed_until - now, 0.0),
        pool.slowdown,
        float(pool.calm),
        -1 if pool.slots is None else pool.slots,
        out,
        fit_s,
        claims,
        len(pool.levels),
    ]
    for level in pool.levels:
        flat += [
            level.dimension,
            level.capacity,
            level.published,
            level.free(now),
            now - level.mark if level.kind == RATE else inf,
            now - level.opened_at,
            level.at if level.kind == WINDOW else -1,
        ]
    return flat
