"""Transactions that are done once, whatever becomes of the connection.

A connection may be lost after COMMIT was sent and before its answer came: nobody knows then whether it counted. So each
writer has a row in `commits`, and each of its transactions begins by writing its number there. After a loss that row
tells: if it holds the number, the transaction is in; if not, it is done again. The row is locked from the transaction's
beginning to its end, and looked at under that lock, so one that is still on its way is waited for. SQLite has no such
question: the file is here.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from interlock.errors import StoreError

from .link import IDLE_SETTING, Link, idle_limit, transaction
from .place import reason

if TYPE_CHECKING:
    from sqlalchemy import Connection, Update

T = TypeVar("T")

log = logging.getLogger("interlock.runtime")

#: Seconds between two tries to reach a database that is away: doubled from the first to the last.
FIRST_DELAY_S, LAST_DELAY_S = 0.05, 2.0
#: For so long is it tried once the writer has been asked to close.
CLOSING_PATIENCE_S = 10.0
#: A writer's row that nobody has touched for so long was left by a process that died.
LEFT_BEHIND = timedelta(days=1)


@cache
def _marking() -> Update:
    """With it the server is told, in the same round trip, to cut off a process that is frozen with rows locked."""
    from sqlalchemy import bindparam, func

    from .schema import commits

    here = commits.c.writer == bindparam("of")
    told = func.set_config(IDLE_SETTING, bindparam("idle_limit"), True).is_not(None)
    return commits.update().where(here, told).values(number=bindparam("now"), at=bindparam("when"))


class Sure:
    """The connection of one writer's thread, made anew when it is lost."""

    def __init__(self, link: Link, name: str, first: Callable[[Connection], None] | None = None) -> None:
        self._link, self._name, self._first = link, name, first
        self._connection: Connection | None = None
        self._writer, self._number, self._known = uuid4().hex, 0, False
        self._hurry = threading.Event()
        self._until = 0.0
        #: Why nothing is tried any more: the database stayed away for longer than a closing writer waits.
        self.gave_up: StoreError | None = None
        #: Whether it is away: read from any thread.
        self.away = False

    def hurry(self) -> None:
        """From any thread: the writer is to close, so a database that is away is waited for no longer than a while."""
        self._until = monotonic() + CLOSING_PATIENCE_S
        self._hurry.set()

    def transact(self, work: Callable[[Connection], T], *, reads: bool = False) -> T:
        """Do `work` in a transaction that is committed exactly once, and give its answer. Waits while the database is
        away. Raises what `work` raises for reasons of its own, and StoreError where it closes meanwhile."""
        self._number += 1
        answer: list[T] = []
        tries, away_since = 0, 0.0
        while True:
            if self.gave_up is not None:
                raise self.gave_up
            try:
                self._once(work, reads, answer, again=tries > 0)
            except Exception as error:
                if not self._link.is_away(error):
                    self._drop(broken_only=True)
                    raise
                self._drop()
                away_since = away_since or monotonic()
                self.away = True
                if tries == 1:
                    log.warning("the store %s is away (%s): its rows wait, none is lost", self._name, reason(error))
                self._wait(tries, error)
                tries += 1
            else:
                self.away = False
                if tries > 1:
                    log.warning("the store %s is back after %.1f s", self._name, monotonic() - away_since)
                return answer[-1]

    def _once(self, work: Callable[[Connection], T], reads: bool, answer: list[T], again: bool) -> None:
        """One try. The last answer is that of the try that reached its COMMIT."""
        connection = self._connected()
        connection.execution_options(interlock_read=reads)
        if reads or not self._link.numbers:
            with transaction(connection):
                if not reads:
                    self._begin(connection)
                answer.append(work(connection))
            return
        if again and self._known and self._is_committed(connection):
            return
        while True:
            if not self._known:
                self._register(connection)
            with transaction(connection):
                self._known = self._mark(connection)
                if self._known:
                    self._begin(connection)
                    answer.append(work(connection))
                    return

    def _begin(self, connection: Connection) -> None:
        if self._first is not None:
            self._first(connection)

    def close(self) -> None:
        if self._known and self.gave_up is None:
            try:
                self.transact(self._forget)
            except Exception:
                log.debug("the row of a closed writer was left behind", exc_info=True)
        self._drop()
        self._link.dispose()

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._link.connect()
            self._link.shorten_lock_wait(self._connection)
        return self._connection

    def _drop(self, *, broken_only: bool = False) -> None:
        connection = self._connection
        if connection is None or (broken_only and not (connection.closed or connection.invalidated)):
            return
        self._connection = None
        self._link.drop(connection)

    def _wait(self, tries: int, error: Exception) -> None:
        if self._hurry.is_set() and monotonic() >= self._until:
            self.gave_up = StoreError(
                f"the store {self._name} is away, and what was to be written last is not in it: {reason(error)}"
            )
            raise self.gave_up from None
        if tries:  # at once the first time: a connection that stood idle may just have been cut
            delay_s = min(FIRST_DELAY_S * 2 ** (tries - 1), LAST_DELAY_S) * (0.5 + random.random() / 2)
            if self._hurry.is_set():
                sleep(delay_s)
            else:
                self._hurry.wait(delay_s)

    # The number.

    def _register(self, connection: Connection) -> None:
        """Make the row, in a transaction of its own: it must be there to be locked by whoever looks."""
        from sqlalchemy import or_

        from .schema import commits

        now = datetime.now(UTC)
        with transaction(connection):
            old = or_(commits.c.at < now - LEFT_BEHIND, commits.c.writer == self._writer)
            connection.execute(commits.delete().where(old))
            connection.execute(commits.insert(), {"writer": self._writer, "number": 0, "at": now})
        self._known = True

    def _mark(self, connection: Connection) -> bool:
        """Whether the number was written; the row is gone where the server was restored from before this process."""
        values = {"of": self._writer, "now": self._number, "when": datetime.now(UTC), "idle_limit": idle_limit()}
        return connection.execute(_marking(), values).rowcount > 0

    def _is_committed(self, connection: Connection) -> bool:
        from .schema import commits

        with transaction(connection):
            row = connection.execute(commits.select().where(commits.c.writer == self._writer).with_for_update()).first()
        self._known = row is not None
        return row is not None and row.number == self._number

    def _forget(self, connection: Connection) -> None:
        from .schema import commits

        connection.execute(commits.delete().where(commits.c.writer == self._writer))
