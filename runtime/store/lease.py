"""Lease: this process's life in the store, kept by a thread with a connection of its own, whatever the loop does.

With each beat it reads what others want of this process's runs (a cancel, a pause): within 5 s with the usual TTL.

While the store cannot be reached nothing is given up: whether the owner still lives is the store's to say. One who has
tried all along and was not let in (a server away, a file locked, a full disk) lives on when it is back, unless somebody
has given it up by then. Once the store says no (it was frozen for longer than its TTL, say), `on_lost` is called, once,
from the thread; what the process still writes into the journal is refused by then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from interlock.errors import LeaseLostError

from .link import Link, transaction

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from .run_changes import Wanted

T = TypeVar("T")

log = logging.getLogger("interlock.runtime")

#: Beats in one TTL: three may be lost.
BEATS = 4


class Lease:
    """`start` registers and begins to beat; `stop` leaves. Both block, and are called in a thread."""

    def __init__(self, link: Link, name: str, *, owner: str, ttl_s: float) -> None:
        self._link, self._name, self._ttl_s = link, name, ttl_s
        self.owner, self.fence = owner, 0
        #: Why it is over, where it was given up.
        self.lost: LeaseLostError | None = None
        self._listeners: list[Callable[[LeaseLostError], None]] = []
        self._heed: Callable[[Mapping[str, Wanted]], None] | None = None
        self._wanted: Mapping[str, Wanted] = {}
        self._lock = threading.Lock()
        self._ending, self._entered = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        #: When it last tried to be heard; whether it is trying now; whether all tries since it was heard were in vain.
        self._tried, self._trying, self._in_vain = monotonic(), False, False
        self._thread = threading.Thread(target=self._run, name="interlock-lease", daemon=True)

    def start(self) -> None:
        """Raises whatever the database says to it."""
        self._thread.start()
        self._entered.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    @property
    def kept_out(self) -> bool:
        """Whether it has tried all along, and in vain: that nobody has heard of it is the store's doing."""
        return self._in_vain and (self._trying or monotonic() - self._tried < self._ttl_s)

    def come_back(self, connection: Connection) -> None:
        """Before anything else is written: the store is back, and the next beat may be long in coming."""
        from . import owners

        if self.kept_out:
            owners.come_back(connection, self.owner)

    def on_lost(self, listener: Callable[[LeaseLostError], None]) -> None:
        """Call `listener`, once, from the thread that finds out; at once where that has been."""
        with self._lock:
            self._listeners.append(listener)
            lost = self.lost
        if lost is not None:
            listener(lost)

    def on_wanted(self, heed: Callable[[Mapping[str, Wanted]], None]) -> None:
        """Call `heed`, from the thread, whenever what is wanted of this process's runs has changed: with all of it."""
        self._heed = heed

    def stop(self) -> None:
        """Give everything up in good order. A store that is away is left to see the TTL pass."""
        self._ending.set()
        self._thread.join()

    # In the thread.

    def _run(self) -> None:
        try:
            self._link.serve(self._keep)
        except BaseException as error:
            if self._entered.is_set():  # nobody beats any more, so it will be given up: better said now than then
                log.exception("the lease in %s cannot be kept", self._name)
                self._is_lost()
            else:
                self._failure = error
        finally:
            self._entered.set()

    def _keep(self) -> None:
        from . import owners

        who = owners.Incarnation.here()
        connection: Connection | None = self._link.connect()
        try:
            assert connection is not None
            with transaction(connection):
                self._link.limit_idle_time(connection)
                self.fence = owners.enter(connection, self.owner, who, self._ttl_s)
            self._link.shorten_lock_wait(connection)
            self._entered.set()
            while not self._ending.wait(self._ttl_s / BEATS):
                connection, heard = self._try(connection, self._beat)
                if heard is None:
                    continue
                living, wanted = heard
                if not living:
                    self._is_lost()
                    return
                self._tell(wanted)
            connection, _ = self._try(connection, owners.leave)  # one that was made anew is closed, too
        finally:
            if connection is not None:
                connection.close()
            self._link.dispose()

    def _beat(self, connection: Connection, owner: str) -> tuple[bool, Mapping[str, Wanted]]:
        from . import owners
        from .run_changes import wanted

        living = owners.beat(connection, owner) or (self.kept_out and owners.come_back(connection, owner))
        return living, wanted(connection, owner)

    def _try(
        self, connection: Connection | None, say: Callable[[Connection, str], T]
    ) -> tuple[Connection | None, T | None]:
        """Say it, once; the connection to go on with and the answer, None where there was none."""
        in_time = monotonic() - self._tried < self._ttl_s  # else it was frozen, whatever has kept it out before
        self._in_vain, self._trying = self._in_vain and in_time, True
        try:
            if connection is None:
                connection = self._link.connect()
                self._link.shorten_lock_wait(connection)
            with transaction(connection):
                self._link.limit_idle_time(connection)
                answer = say(connection, self.owner)
        except Exception as error:
            log.debug("the lease in %s was not heard (%s)", self._name, type(error).__name__)
            self._in_vain = in_time
            if connection is not None:
                self._link.drop(connection)
            return None, None
        finally:
            self._tried, self._trying = monotonic(), False
        self._in_vain = False
        return connection, answer

    def _tell(self, wanted: Mapping[str, Wanted]) -> None:
        # Again and again while anything is wanted: a run may have been taken up only since it was said last.
        if self._heed is not None and (wanted or self._wanted):
            self._wanted = wanted
            self._heed(wanted)

    def _is_lost(self) -> None:
        error = LeaseLostError(
            f"this process was not heard of for {self._ttl_s:g} s, so others may have taken its runs over:"
            f" what it still does is not kept (lease {self.fence} in {self._name})"
        )
        with self._lock:
            self.lost = error
            listeners = list(self._listeners)
        for listener in listeners:
            listener(error)
