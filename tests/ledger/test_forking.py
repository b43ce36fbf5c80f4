"""A fork waits until no transaction of this process is open in SQLite: a child would inherit its locks for good."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

import pytest

from interlock.admission.ledger import forking
from interlock.admission.ledger.forking import Transactions, unforked
from interlock.runtime.store.link import sqlite_engine, transaction
from interlock.runtime.store.place import Place

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


def forked(child: Callable[[], bool]) -> bool:
    """What the child found."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(0 if child() else 1)
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1] == 0


def written(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=0.2, isolation_level=None)) as connection:
        connection.execute("INSERT INTO notes VALUES (1)")
    return True


def test_a_child_may_write_where_its_parent_was_writing(tmp_path: Path) -> None:
    engine = sqlite_engine(Place.of(f"sqlite:///{tmp_path}/s.db"))
    begun = threading.Event()
    with engine.connect() as connection:
        connection.connection.cursor().execute("PRAGMA journal_mode=WAL")
        with transaction(connection):
            connection.exec_driver_sql("CREATE TABLE notes (number INTEGER)")

        def write() -> None:
            with transaction(connection):
                connection.exec_driver_sql("INSERT INTO notes VALUES (0)")
                begun.set()
                forking.open_transactions.fork_waits.wait(10)

        writer = threading.Thread(target=write)
        writer.start()
        begun.wait()
        assert forked(lambda: written(tmp_path / "s.db"))
        writer.join()
        assert connection.exec_driver_sql("SELECT count(*) FROM notes").scalar() == 2
    engine.dispose()


def test_a_child_of_an_open_transaction_never_gets_its_lock(tmp_path: Path) -> None:
    """The fault itself; where it is gone one day, the waiting may go, too."""
    heard, told = os.pipe()
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE notes (number INTEGER)")
        connection.execute("BEGIN IMMEDIATE")
        pid = os.fork()
        if not pid:
            os.read(heard, 1)  # by then the parent has committed
            try:
                written(tmp_path / "s.db")
            except sqlite3.OperationalError as error:
                os._exit(7 if "locked" in str(error) else 1)
            os._exit(0)
        connection.execute("COMMIT")
        os.write(told, b".")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    os.close(heard)
    os.close(told)


def test_a_fork_waits_no_longer_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "PATIENCE_S", 0.01)
    with unforked():
        assert forked(lambda: forking.open_transactions.count == 0)
        assert forking.open_transactions.count == 1
    assert forking.open_transactions.count == 0


def test_no_transaction_is_begun_while_a_fork_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or those of several threads, one into the other, would never let it through."""
    told: SimpleQueue[str] = SimpleQueue()
    transactions = Transactions()

    class Told(threading.Condition):
        def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
            told.put("waits")
            return super().wait_for(predicate, timeout)

    def fork() -> None:
        transactions.before_fork()
        told.put("forked")
        transactions.in_parent()

    def begin() -> None:
        with transactions.unforked():
            told.put("begun")

    forking_thread, other = threading.Thread(target=fork), threading.Thread(target=begin)
    with transactions.unforked():
        monkeypatch.setattr(transactions, "_changed", Told())
        forking_thread.start()
        assert told.get() == "waits"
        other.start()
        assert told.get() == "waits", "begun although a fork waits"
        with transactions.unforked():
            pass  # the fork waits for this very thread
    assert [told.get(), told.get()] == ["forked", "begun"]
    forking_thread.join()
    other.join()
