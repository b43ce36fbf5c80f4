"""A process is not forked while it has a transaction open in SQLite.

SQLite keeps in memory which locks this process holds on a file, and a child inherits that memory, the lock on the
ledger's file too: forked in the midst of a transaction, it waits for ever for what its own copy says is taken. So a
fork waits until none is open, a few milliseconds, and meanwhile none is begun.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

#: Seconds after which a fork goes on all the same: what takes so long waits for another process.
PATIENCE_S = 5.0


class _Mine(threading.local):
    """Of the thread that asks."""

    count = 0


class Transactions:
    """How many are open, in all threads."""

    def __init__(self) -> None:
        self.count, self._mine, self._changed = 0, _Mine(), threading.Condition()
        self.fork_waits = threading.Event()

    @contextmanager
    def unforked(self) -> Iterator[None]:
        with self._changed:
            if not self._mine.count:  # else the fork waits for this very thread
                self._changed.wait_for(lambda: not self.fork_waits.is_set(), PATIENCE_S)
            self.count += 1
            self._mine.count += 1
        try:
            yield
        finally:
            with self._changed:
                self.count -= 1
                self._mine.count -= 1
                self._changed.notify_all()

    def before_fork(self) -> None:
        self._changed.acquire()  # until the fork is done
        self.fork_waits.set()
        self._changed.wait_for(lambda: not self.count, PATIENCE_S)

    def in_parent(self) -> None:
        self.fork_waits.clear()
        self._changed.notify_all()
        self._changed.release()


open_transactions = Transactions()


def unforked() -> AbstractContextManager[None]:
    """Around a transaction in SQLite: no fork meanwhile."""
    return open_transactions.unforked()


def _in_child() -> None:
    """Where none of the parent's threads go on, nor their transactions."""
    global open_transactions
    open_transactions = Transactions()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: open_transactions.before_fork(),
        after_in_parent=lambda: open_transactions.in_parent(),
        after_in_child=_in_child,
    )
