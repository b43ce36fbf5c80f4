"""The schema's versions: a new store is made, an older one brought up without loss, a newer one refused.

Everything happens in the one transaction that is open on the connection, under a lock that others wait for: SQLite's
writer lock, an advisory lock of the transaction on Postgres. So two processes may open an empty store at once. Alembic
is imported only where there is something to do.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: Not Alembic's own name: a database that is shared with the user's tables may have one of that.
VERSION_TABLE = "interlock_version"
MIGRATIONS = Path(__file__).parent / "migrations"
#: The key of the lock: "interlok" as a number, so that nobody else's is met by chance.
LOCK_KEY = int.from_bytes(b"interlok")
#: Alembic's `op` and `context` are the process's, and two Runtimes may be opened in two threads.
_ONE_AT_A_TIME = threading.Lock()
#: What tells our `calls` from somebody else's table of that name.
_OURS = {"run_id", "step_id", "wire_model_id", "request_hash"}


def versions() -> list[str]:
    """All versions this program knows, oldest first."""
    return sorted(path.name[1:5] for path in (MIGRATIONS / "versions").glob("v[0-9][0-9][0-9][0-9]_*.py"))


def upgrade(connection: Connection, name: str) -> tuple[str | None, str]:
    """Bring the store up, inside the open transaction; the version it was of (None: there was nothing) and is now.

    Raises StoreError for a store of a newer version, and for a database whose tables are another program's.
    """
    known = versions()
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK_KEY})")
    found = version_of(connection)
    _check_known(found, known, name)
    if found == known[-1]:
        return found, known[-1]
    with _ONE_AT_A_TIME:
        config = _config(connection)
        if found is None and _adopt(connection, name):
            found = known[0]
            _command("stamp", config, found)
        _command("upgrade", config, "head")
    return found, known[-1]


def check_readable(connection: Connection, name: str) -> None:
    """Raises StoreError for what is no store, or one of another version, which only reads will not change."""
    known, found = versions(), version_of(connection)
    _check_known(found, known, name)
    if found is None and not _has_calls(connection):
        raise StoreError(f"{name} is a database, but not a store of Interlock: it has no table `calls`")
    if found != known[-1]:
        raise StoreError(
            f"the store {name} is of an earlier version: open it once with a Runtime, which brings it up, or run "
            "`interlock store upgrade`"
        )


def version_of(connection: Connection) -> str | None:
    """The version a store is of; None where it says nothing: an empty database, or a file of the first release."""
    from sqlalchemy import inspect

    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()
    return None if found is None else str(found)


def _check_known(found: str | None, known: list[str], name: str) -> None:
    if found is not None and found not in known:
        raise StoreError(
            f"the store {name} was written by a newer version of Interlock: its schema is {found}, and this version "
            f"knows it up to {known[-1]}. Upgrade Interlock, or use another store"
        )


def _has_calls(connection: Connection) -> bool:
    from sqlalchemy import inspect

    return bool(inspect(connection).has_table("calls"))


def _adopt(connection: Connection, name: str) -> bool:
    """Whether a store of the first release is there: made complete, as that version. It had no version table."""
    from sqlalchemy import inspect

    if not _has_calls(connection):
        return False
    there = {column["name"] for column in inspect(connection).get_columns("calls")}
    if not there >= _OURS:
        raise StoreError(f"{name} holds a table `calls` of another program: give the store a database of its own")
    if "cache_write_1h_tokens" not in there:  # the one column that came while there were no migrations
        connection.exec_driver_sql("ALTER TABLE calls ADD COLUMN cache_write_1h_tokens BIGINT")
    if not inspect(connection).has_table("levels"):
        connection.exec_driver_sql(
            "CREATE TABLE levels (pool TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, saved_at TEXT NOT NULL, "
            "closed BOOLEAN NOT NULL, memory TEXT NOT NULL, others TEXT)"
        )
    return True


def _config(connection: Connection) -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _command(name: str, config: Any, revision: str) -> None:
    from alembic import command

    getattr(command, name)(config, revision)
