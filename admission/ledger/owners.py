"""Owners: one per process incarnation, alive for as long as it says so. The rules are pure; the heart is a thread.

A lease
    is three quarters of the TTL, renewed every quarter of it, and read on the ledger's clock alone. Once it has run
    out, others may give its owner up: its row goes, and with it whatever is said under its fence.

Who may give others up
    An owner that has been heard without a gap for a whole TTL. After an outage of the ledger nobody has: so everybody
    has a TTL to come back, and finds what it held. The same goes for a machine that slept.

Coming back
    An owner whose lease has run out but that nobody has given up yet may renew it if it was awake all along and could
    only not be heard. One that was itself stopped (SIGSTOP, a debugger) may not: it does not know what has happened
    since, and its work ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from interlock.errors import InterlockError, LeaseLostError, LedgerUnavailableError

from .message import Message
from .pulse import Pulse

log = logging.getLogger("interlock.admission.ledger")

#: Of the TTL: how long a lease lasts, and how often it is renewed.
LEASE_PART, BEAT_PART = 0.75, 0.25
#: Seconds that an end waits for a heartbeat under way, for its last words, and for the files to be closed.
LAST_WORDS_S = 2.0


class LapsedError(InterlockError):
    """The lease has run out, and nobody has given the owner up yet: renew it or stop."""

    code = "lease_lapsed"


@dataclass(slots=True)
class OwnerRow:
    """One incarnation. `since`: heard without a gap since. `reply`: what the message `seq` was answered, as JSON."""

    owner: str
    fence: int
    since: float
    alive_until: float
    seq: int = 0
    reply: str = ""


def lost(owner: str, why: str = "another process has given it up") -> LeaseLostError:
    return LeaseLostError(
        f"this process ({owner}) has lost its lease on the shared ledger: {why}. What it held was given back, and "
        "nothing it says counts any more; its work stops here. A new process may go on with it"
    )


def lapsed(owner: str, ago_s: float) -> LapsedError:
    return LapsedError(f"the lease of {owner} ran out {ago_s:.1f} s ago")


def stopped(owner: str) -> LeaseLostError:
    """For one that was not running while its lease ran out."""
    return lost(owner, "it did not run for longer than its lease lasts")


def check(row: OwnerRow | None, message: Message, now: float) -> bool:
    """Whether the message is a new one; False: it was answered already, and `row.reply` is the answer.

    Raises LeaseLostError, LapsedError, or ValueError for a message that is older than the last.
    """
    if row is None or row.fence != message.fence:
        raise lost(message.owner)
    if row.alive_until < now:
        raise lapsed(message.owner, now - row.alive_until)
    if message.seq < row.seq:
        raise ValueError(f"message {message.seq} of {message.owner} comes after message {row.seq}")
    return message.seq != row.seq


def beaten(row: OwnerRow | None, owner: str, now: float, ttl_s: float, *, revive: bool) -> None:
    """Renew the lease. LeaseLostError where the owner was given up; without `revive`, LapsedError where it ran out."""
    if row is None:
        raise lost(owner)
    if row.alive_until < now:
        if not revive:
            raise lapsed(owner, now - row.alive_until)
        row.since = now
    row.alive_until = now + LEASE_PART * ttl_s


def may_judge(row: OwnerRow, now: float, ttl_s: float) -> bool:
    """Whether this owner may give up those whose lease has run out."""
    return now - row.since >= ttl_s


class Heart:
    """The thread that keeps an owner alive, whatever the event loop does.

    `beat(revive)` renews the lease on a connection of its own, or raises LapsedError where it ran out and is not to be
    revived; it is only ever called on this thread, as is `over`.
    """

    def __init__(
        self,
        owner: str,
        ttl_s: float,
        beat: Callable[[bool], None],
        over: Callable[[], None],
        on_lost: Callable[[LeaseLostError], None],
    ) -> None:
        self._owner, self._every_s = owner, BEAT_PART * ttl_s
        self._beat, self._over, self._on_lost = beat, over, on_lost
        self._pulse = Pulse(f"interlock-pulse-{owner}", every_s=BEAT_PART * ttl_s, gap_s=LEASE_PART * ttl_s)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"interlock-ledger-{owner}", daemon=True)

    def start(self) -> None:
        self._pulse.start()
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended, or in `LAST_WORDS_S`: then it ends with its beat. May be called again."""
        self._ending.set()
        self._pulse.stop()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(LAST_WORDS_S)

    @property
    def awake(self) -> bool:
        """Whether this process has been running all along, as far as a lease goes."""
        return self._pulse.steady

    def _once(self) -> None:
        awake = self.awake
        try:
            self._beat(False)
        except LapsedError:
            # It may have been stopped only now, on the way there: so it is asked first, and revived after that.
            if not (awake and self.awake):
                raise stopped(self._owner) from None
            self._beat(True)
        self._pulse.forget()

    def _run(self) -> None:
        away = False
        try:
            while not self._ending.wait(self._every_s):
                try:
                    self._once()
                    away = False
                except LeaseLostError as error:
                    if not self._ending.is_set():  # what it has left, it cannot lose
                        self._on_lost(error)
                    return
                except LedgerUnavailableError as error:
                    level = logging.DEBUG if away else logging.WARNING
                    log.log(level, "a heartbeat of %s was not heard, and it is tried again: %s", self._owner, error)
                    away = True
                except Exception:
                    log.exception("ledger: a heartbeat of %s failed", self._owner)
        finally:
            self._pulse.stop()
            self._over()
