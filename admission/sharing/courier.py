"""The courier: between the line of one process and the ledger of all, one message in flight.

It sets out when somebody in the line lacks nothing but what the ledger has, when a call has ended, and when there is a
signal to pass on; where asks were refused it asks again at the instant at which the ledger expects the first to fit,
and a few times a second before (others give back). Nothing runs while there is nothing to say.

While the ledger cannot be reached jobs wait: nothing is sent unmetered, and the same message is said again until there
is an answer. When this process has been given up (it was stopped for longer than it is believed to live), everybody who
waits is refused, and `on_lost` is told, so that what runs can be stopped too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, TypeVar

from interlock.errors import ConfigurationError, LeaseLostError, LedgerUnavailableError

from ..charges import NOTHING, Charge
from ..ledger.message import Ask, Message, Part, PoolTerms, Reply, Settle, Signal
from ..ledger.rules import UnknownPoolError
from ..queues import NO_TICKET
from .accounts import SharedGate
from .asks import next_asks
from .link import PoolLink

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from interlock.catalog.entry import Limits

    from ..accounts import Account
    from ..clock import Clock
    from ..ledger.protocol import Ledger
    from ..line import Line
    from ..waiting import Waiting

R = TypeVar("R")

log = logging.getLogger("interlock.admission")

#: Seconds between two messages where the last one was granted nothing; where refused asks are made again; and after how
#: long calls that have ended are told of where nobody asks.
REFUSED_EVERY_S, ASK_AGAIN_S, TELL_AFTER_S = 0.02, 0.1, 0.02
#: Waits between two attempts to reach a ledger that cannot be reached.
FIRST_RETRY_S, LONGEST_RETRY_S = 0.05, 2.0
#: How long the last words may take.
CLOSE_S = 2.0
#: Where a demand has no ticket yet: keys that no ticket reaches.
UNTICKETED = 1 << 52
#: The priorities that a ledger can tell apart, from this below 0 to this above.
HIGHEST = 2**31 - 1


class Courier:
    """One per `Admission` with a ledger.

    `told` looks again at whoever is short of these accounts; `charges` is what each call of a waiter is charged;
    `checked` takes back one whose size the ledger was asked about; `slots` hears of a pool's `max_concurrent`; `lost`
    refuses everybody.
    """

    def __init__(
        self,
        ledger: Ledger,
        line: Line,
        clock: Clock,
        *,
        told: Callable[[Iterable[Account]], None],
        charges: Callable[[Waiting], Sequence[Charge]],
        checked: Callable[[Waiting], None],
        slots: Callable[[str, int], None],
        lost: Callable[[LeaseLostError], None],
    ) -> None:
        self._ledger, self._line, self._clock = ledger, line, clock
        self._told, self._charges, self._lost = told, charges, lost
        self._checked, self._slots = checked, slots
        #: Who seems to be larger than a pool holds: to be asked about, and asked about in the message under way.
        self._to_check: list[Waiting] = []
        self._checking: list[Waiting] = []
        self.links: dict[str, PoolLink] = {}
        #: Those that may have news: of a thousand pools a message looks at the few in use.
        self._stirred: dict[str, PoolLink] = {}
        self._terms: dict[str, PoolTerms] = {}
        self._unregistered: dict[str, PoolTerms] = {}
        self._seq = 0
        self._unanswered: Message | None = None
        self._task: asyncio.Task[None] | None = None
        self._urgent = asyncio.Event()
        #: When the last answer came, whether it granted nothing of what was asked, and when to ask again (None: all
        #: that was asked was granted).
        self._answered_at, self._refused = 0.0, False
        self._again_at: float | None = None
        self._closing = False
        self.lease_lost: LeaseLostError | None = None
        #: The clock's instant since when the ledger has not answered; None: it does.
        self.unreachable_since: float | None = None

    # What the line's side calls. Each returns at once.

    def link(self, name: str, limits: Limits) -> PoolLink:
        """The link of a pool; its limits are registered before anybody asks for it."""
        link = self.links.get(name)
        if link is None:
            link = self.links[name] = PoolLink(name, self._stir)
        self._terms[name] = self._unregistered[name] = PoolTerms(name=name, limits=limits)
        self.kick()
        return link

    def _stir(self, link: PoolLink, urgent: bool) -> None:
        self._stirred[link.name] = link
        self.kick(urgent)

    def kick(self, urgent: bool = True) -> None:
        """There is something to ask (`urgent`), or to tell."""
        if urgent:
            self._urgent.set()
        if self._task is not None and not self._task.done():
            return
        if self._closing or self.lease_lost is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # a finaliser after the loop has gone: `close` says the rest
        self._task = loop.create_task(self._run(), name="interlock-ledger")

    def check(self, waiting: Waiting) -> bool:
        """It is larger than what its pool is known to hold: limits may have grown unheard. False: nobody answers."""
        if self.unreachable_since is None:
            self._to_check.append(waiting)
            self.kick()
        return self.unreachable_since is None

    def being_checked(self) -> list[Waiting]:
        return [*self._checking, *self._to_check]

    def lose(self, error: LeaseLostError) -> None:
        """This process has been given up. Once."""
        if self.lease_lost is None:
            self.lease_lost = error
            self._lost(error)

    async def close(self) -> None:
        """Say what is left to say, for as long as the ledger answers."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self.lease_lost is not None or self.unreachable_since is not None:
            return
        with suppress(LedgerUnavailableError, ConfigurationError, LeaseLostError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                if self._unanswered is not None:
                    self._apply(self._unanswered, await self._exchange(self._unanswered))
                self._stirred = dict(self.links)
                if self._has_news():
                    await self._exchange(self._message([]))

    # Under way.

    async def _run(self) -> None:
        try:
            while (wait_s := self._wait_s()) is not None:
                if wait_s > 0:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(wait_s):
                            await self._urgent.wait()
                    wait_s = self._wait_s() or 0.0
                    if self._urgent.is_set() and wait_s > 0:
                        await asyncio.sleep(wait_s)
                await self._round()
        except LeaseLostError as error:
            self.lose(error)
        except Exception as error:  # nobody awaits this task: whoever waits in the line has to hear of it
            log.exception("the ledger failed in a way that no waiting mends")
            broken = LeaseLostError(
                f"the shared ledger failed ({type(error).__name__}), and what this process has there is not known any "
                "more: nothing more is admitted to a shared pool. Its log has the error; a new process may go on"
            )
            broken.__cause__ = error
            self.lose(broken)

    def _wait_s(self) -> float | None:
        """How long the next message may wait; None where there is none."""
        since = self._clock.now() - self._answered_at
        if self._urgent.is_set():
            return max(REFUSED_EVERY_S - since, 0.0) if self._refused else 0.0
        waits = [] if self._again_at is None else [self._again_at - self._clock.now()]
        if self._has_news():
            waits.append(TELL_AFTER_S - since)
        return max(min(waits), 0.0) if waits else None

    def _has_news(self) -> bool:
        return bool(self._unregistered) or any(link.has_news for link in self._stirred.values())

    async def _round(self) -> None:
        """One message and its reply."""
        self._urgent.clear()
        while self._unregistered:  # others may come while these are on their way
            await self._register()
        waiters = next_asks(self._line, self._clock.now())
        if not waiters and not self._to_check and not self._has_news():
            self._refused, self._again_at = False, None
            return
        message = self._unanswered = self._message(waiters)
        reply = await self._until_answered(lambda: self._exchange(message))
        self._apply(message, reply)

    async def _exchange(self, message: Message) -> Reply:
        """An answer. A ledger that was emptied under its processes is told of the pools once more."""
        try:
            return await self._ledger.exchange(message)
        except UnknownPoolError as error:
            log.warning("%s: it was emptied, and is told of the pools again", error.args[0])
            await self._ledger.register(tuple(self._terms.values()))
            return await self._ledger.exchange(message)

    async def _register(self) -> None:
        terms = tuple(self._unregistered.values())
        states = await self._until_answered(lambda: self._ledger.register(terms))
        for one in terms:
            if self._unregistered.get(one.name) is one:  # it has not been edited again meanwhile
                del self._unregistered[one.name]
        now = self._clock.now()
        for state in states:
            self.links[state.pool].heard(state, now)
        self._told([account for state in states for account in self.links[state.pool].accounts])

    async def _until_answered(self, attempt: Callable[[], Awaitable[R]]) -> R:
        """Again and again while the ledger cannot be reached. Nothing is sent unmetered meanwhile."""
        retry_s = FIRST_RETRY_S
        while True:
            try:
                answer = await attempt()
            except (LedgerUnavailableError, ConfigurationError) as error:  # the latter: it lets nobody in just now
                if self.unreachable_since is None:
                    self.unreachable_since = self._clock.now()
                    log.warning("%s; whoever needs a shared pool waits until it answers", error)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, LONGEST_RETRY_S)
            else:
                if self.unreachable_since is not None:
                    log.warning("the ledger answers again")
                    self.unreachable_since = None
                return answer

    # Messages.

    def _message(self, waiters: Sequence[Waiting]) -> Message:
        signals: list[Signal] = []
        settles: list[Settle] = []
        stirred, self._stirred = self._stirred, {}
        for link in stirred.values():
            if link.has_news:
                more, settle = link.collect()
                signals += more
                if settle is not None:
                    settles.append(settle)
        self._checking, self._to_check = self._to_check, []
        links = [call.pool.link for waiting in self._checking for call in waiting.demand.calls]
        self._seq += 1
        return Message(
            owner=self._ledger.owner,
            fence=self._ledger.fence,
            seq=self._seq,
            signals=tuple(signals),
            settles=tuple(settles),
            asks=tuple([self._ask(waiter) for waiter in waiters]),
            watch=tuple({link.name for link in links if link is not None}),
        )

    def _ask(self, waiting: Waiting) -> Ask:
        parts: dict[str, Charge] = {}
        for call, charge in zip(waiting.demand.calls, self._charges(waiting), strict=True):
            link = call.pool.link
            if link is not None:
                n = call.count
                before = parts.get(link.name, NOTHING)
                parts[link.name] = Charge(*[a + n * b for a, b in zip(before, charge, strict=True)])
        slots = {
            account.link.name: int(n)
            for account, n in zip(waiting.group.accounts, waiting.amounts, strict=True)
            if isinstance(account, SharedGate)
        }
        key = waiting.ticket if waiting.ticket != NO_TICKET else UNTICKETED + id(waiting)
        return Ask(
            key=key,
            parts=tuple([Part(pool=name, charge=charge, slots=slots.get(name, 0)) for name, charge in parts.items()]),
            priority=max(-HIGHEST, min(-waiting.rank, HIGHEST)),
        )

    def _apply(self, message: Message, reply: Reply) -> None:
        """Credit what was granted, take over what was said, and let whoever can go now go."""
        self._unanswered, now = None, self._clock.now()
        asked: dict[str, int] = {}
        granted: dict[str, int] = {}
        for ask in message.asks:
            for part in ask.parts:
                asked[part.pool] = asked.get(part.pool, 0) + 1
        for place in reply.granted:
            for part in message.asks[place].parts:
                granted[part.pool] = granted.get(part.pool, 0) + 1
                link = self._stirred[part.pool] = self.links[part.pool]
                link.granted(part.charge, part.slots)
        for name, state in reply.pools.items():
            link = self.links[name]
            link.heard(state, now)
            if name in asked:
                link.answered(asked[name], granted.get(name, 0))
        self._answered_at, self._again_at = now, None
        self._refused = bool(message.asks) and not reply.granted
        if len(reply.granted) < len(message.asks):
            self._again_at = now + min(ASK_AGAIN_S, _soonest_s(message, reply))
        for name, state in reply.pools.items():
            if state.slots is not None and self.links[name].gate is None:
                self._slots(name, state.slots[0])
        self._told([account for name in reply.pools for account in self.links[name].accounts])
        checked, self._checking = self._checking, []
        for waiting in checked:
            self._checked(waiting)


def _soonest_s(message: Message, reply: Reply) -> float:
    """When the first of the refused asks fits, in all of its pools."""
    granted, seen, soonest = set(reply.granted), set[str](), inf
    for place, ask in enumerate(message.asks):
        if place in granted:
            continue
        fits = [reply.pools[part.pool].fit_in_s for part in ask.parts if part.pool not in seen]
        seen.update(part.pool for part in ask.parts)
        soonest = min(soonest, max((fit for fit in fits if fit is not None), default=inf))
    return soonest
