"""A store is made, brought up without loss, refused where it is newer; the tables are those of the schema."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, text

from interlock import Runtime, RuntimeSettings
from interlock.errors import StoreError
from interlock.runtime import CallRow
from interlock.runtime.store import migrating
from interlock.runtime.store.opening import open_book, read_store, upgrade_store
from interlock.runtime.store.place import Place
from interlock.runtime.store.reads import calls_in
from interlock.runtime.store.schema import metadata

Rows = Callable[..., CallRow]
RELEASED = Path(__file__).with_name("released_0_1_0.sql")


@pytest.fixture
def released(tmp_path: Path) -> str:
    """A file as 0.1.0 made it: three calls, a failed run, one under way, a pool's levels."""
    with closing(sqlite3.connect(tmp_path / "old.db")) as file:
        file.executescript(RELEASED.read_text(encoding="utf-8"))
    return f"sqlite:///{tmp_path}/old.db"


async def test_a_file_of_the_first_release_is_brought_up_and_keeps_every_row(
    released: str, start: datetime, make_row: Rows
) -> None:
    with pytest.raises(StoreError, match=r"earlier version: open it once with a Runtime.*interlock store upgrade"):
        calls_in(released)
    book = open_book(released)
    calls = await book.read_calls()
    assert [(row.run_id, row.record.request_id, row.record.cost, row.record.text) for row in calls] == [
        (None, "req-0", Decimal("0.054399"), None),
        ("run-1", "req-1", Decimal("0.054399"), "a\x00b \ud800"),
        ("run-1", "req-2", Decimal("0.054399"), None),
    ]
    failed, running = await book.read_runs()
    assert (failed.run_id, failed.status, failed.error_code, failed.cost_cap) == (
        "run-1",
        "failed",
        "llm_refusal",
        "0.50",
    )
    assert failed.ended_at == start + timedelta(seconds=9)
    assert (running.run_id, running.status, running.started_at) == ("run-2", "running", start + timedelta(seconds=5))
    assert (await book.read_levels())["p"][0].memory.lacks == {"tokens": (5.0, 1.0)}
    await book.write_call(make_row(9))
    await book.close()
    assert [row.record.request_id for row in calls_in(released)] == ["req-0", "req-1", "req-2", "req-9"]


async def test_a_file_from_before_a_column_of_the_first_release_is_brought_up_too(released: str) -> None:
    with closing(sqlite3.connect(released.removeprefix("sqlite:///"))) as old:
        old.execute("ALTER TABLE calls DROP COLUMN cache_write_1h_tokens")
        old.execute("DROP TABLE levels")
        old.commit()
    assert upgrade_store(released) == ("0001", migrating.versions()[-1])
    assert [row.record.usage.cache_write_1h_tokens for row in calls_in(released)] == [None, None, None]


DOWNWARDS = "runs_to_claim"


def _index(found: Any) -> str | None:
    return getattr(found[1], "name", None) if isinstance(found, tuple) and found[0].endswith("_index") else None


def _indexes(connection: Connection) -> set[str | None]:
    return {index["name"] for index in inspect(connection).get_indexes("runs")}


def test_the_migrations_make_the_tables_of_the_schema(store_url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    upgrade_store(store_url)

    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": connection.dialect.name != "sqlite"}
        )
        ours = set(metadata.tables)
        found = [found for found in compare_metadata(context, metadata) if _table(found) in ours]
        # In SQLite an index that has a column downwards cannot be compared: it counts as gone and there.
        return found if connection.dialect.name != "sqlite" else [each for each in found if _index(each) != DOWNWARDS]

    assert read_store(store_url, differences) == []
    assert read_store(store_url, lambda connection: DOWNWARDS in _indexes(connection))


def test_an_upgraded_file_has_the_tables_of_a_new_one(released: str, tmp_path: Path) -> None:
    upgrade_store(released)
    upgrade_store(f"sqlite:///{tmp_path}/new.db")

    def tables(connection: Connection) -> dict[str, list[tuple[Any, ...]]]:
        names = connection.execute(text("SELECT name FROM sqlite_master WHERE type IN ('table', 'index')")).scalars()
        return {
            name: [row[1:2] + row[3:4] for row in connection.exec_driver_sql(f"PRAGMA table_info({name})")]
            for name in names
        }

    assert read_store(released, tables) == read_store(f"sqlite:///{tmp_path}/new.db", tables)


def test_upgrading_twice_changes_nothing(store_url: str) -> None:
    newest = migrating.versions()[-1]
    assert upgrade_store(store_url) == (None, newest)
    assert upgrade_store(store_url) == (newest, newest)


def test_opening_a_store_that_is_up_to_date_does_not_import_alembic(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    upgrade_store(url)
    look = (
        "import sys; from interlock.runtime.store.opening import upgrade_store;"
        f"upgrade_store({url!r}); print([name for name in sys.modules if name.startswith('alembic')])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_store_of_a_newer_version_is_refused_and_left_as_it_is(store_url: str) -> None:
    upgrade_store(store_url)
    newer = text(f"UPDATE {migrating.VERSION_TABLE} SET version_num = '9999'")
    read_store(store_url, lambda connection: connection.execute(newer), writes=True)
    for opened in (open_book, upgrade_store, calls_in):
        with pytest.raises(StoreError, match=r"newer version of Interlock: its schema is 9999, .*Upgrade Interlock"):
            opened(store_url)


def test_a_database_with_tables_of_another_program_is_not_touched(tmp_path: Path, postgres: Any) -> None:
    with closing(sqlite3.connect(tmp_path / "crm.db")) as crm:
        crm.execute("CREATE TABLE calls (id INTEGER, customer TEXT)")
    url = f"sqlite:///{tmp_path}/crm.db"
    with pytest.raises(StoreError, match="table `calls` of another program: give the store a database of its own"):
        open_book(url)
    with closing(sqlite3.connect(tmp_path / "crm.db")) as crm:
        assert crm.execute("SELECT name FROM sqlite_master").fetchall() == [("calls",)]


def test_the_users_own_alembic_is_not_taken_for_ours(store_url: str) -> None:
    def theirs(connection: Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num TEXT)")
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('their-own')")

    upgrade_store(store_url)
    read_store(store_url, theirs, writes=True)
    assert upgrade_store(store_url)[0] == migrating.versions()[-1]


OPENER = """
import asyncio, sys
from interlock.runtime.store.opening import open_book
async def main():
    sys.stdin.readline()
    book = open_book(sys.argv[1])
    await book.close()
    print(book.journal.owner)
asyncio.run(main())
"""


async def test_processes_that_open_an_empty_store_at_once_do_not_collide(store_url: str) -> None:
    openers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", OPENER, store_url,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )
        for _ in range(4)
    ]  # fmt: skip
    ends = await asyncio.gather(*[opener.communicate(b"go\n") for opener in openers])
    assert [opener.returncode for opener in openers] == [0, 0, 0, 0], ends
    fences = text("SELECT fence FROM owners ORDER BY fence")
    assert read_store(store_url, lambda connection: connection.execute(fences).scalars().all()) == [1, 2, 3, 4]


async def test_threads_of_one_process_open_new_stores_at_once(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{n}.db" for n in range(4)]
    ends = await asyncio.gather(*[asyncio.to_thread(upgrade_store, url) for url in urls])
    assert ends == [(None, migrating.versions()[-1])] * 4


def test_reading_a_store_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        calls_in(f"sqlite:///{tmp_path}/none.db")
    assert not (tmp_path / "none.db").exists()
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(StoreError, match="not a store of Interlock"):
        calls_in(f"sqlite:///{tmp_path}/other.db")


def test_a_file_that_cannot_be_opened_says_what_is_wrong_with_it_and_what_to_do(tmp_path: Path) -> None:
    def refused(name: str) -> str:
        with pytest.raises(StoreError) as caught:
            open_book(f"sqlite:///{tmp_path}/{name}")
        return str(caught.value).partition("cannot be opened: ")[2]

    (tmp_path / "text.db").write_text("no database " * 100)
    assert refused("text.db") == "file is not a database. Choose another path: the file there is something else"
    upgrade_store(f"sqlite:///{tmp_path}/half.db")
    file = sqlite3.connect(tmp_path / "half.db")
    file.executescript(f"UPDATE {migrating.VERSION_TABLE} SET version_num = '0002'")
    file.close()
    assert refused("half.db").startswith(
        "duplicate column name: decision. Its tables are not as this version left them"
    )
    (tmp_path / "folder.db").mkdir()
    assert refused("folder.db").endswith("Choose a path that can be written to, or set store=None to keep no records")


def test_an_empty_database_of_a_server_is_no_store(postgres: Any) -> None:
    with pytest.raises(StoreError, match="not a store of Interlock"):
        calls_in(postgres.fresh())


def test_a_database_that_does_not_exist_is_named_and_what_to_do(postgres: Any) -> None:
    with pytest.raises(StoreError, match=r"nowhere.* cannot be opened: .*does not exist\. Create the database first"):
        open_book(postgres.url("nowhere"))


@pytest.mark.parametrize(
    ("given", "driver", "options"),
    [
        ("postgres://me:pw@h/db", "postgresql+asyncpg", {}),
        ("postgresql://me:pw@h/db?sslmode=require&channel_binding=require", "postgresql+asyncpg", {"ssl": "require"}),
        ("postgresql+asyncpg://h/db?password=pw", "postgresql+asyncpg", {"password": "pw"}),
        ("sqlite+aiosqlite:///x.db", "sqlite", {}),
    ],
)
def test_urls_as_others_write_them(given: str, driver: str, options: dict[str, str]) -> None:
    place = Place.of(given)
    assert (place.url.drivername, dict(place.url.query)) == (driver, options)
    assert "pw" not in place.name
    assert "pw" not in repr(place)


async def test_options_of_a_url_are_understood_by_all_who_connect(postgres: Any) -> None:
    url = postgres.fresh() + "&sslmode=disable&prepared_statement_cache_size=0"
    assert "sslmode=disable" in Place.of(url).dsn
    async with Runtime(RuntimeSettings(store=url, ledger="store")) as runtime:  # SQLAlchemy's driver, and asyncpg alone
        assert await runtime.calls() == []


async def test_the_log_is_written_ahead(tmp_path: Path, make_row: Rows) -> None:
    book = open_book(f"sqlite:///{tmp_path}/s.db")
    await book.write_call(make_row())
    with closing(sqlite3.connect(tmp_path / "s.db")) as reader:
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert reader.execute("SELECT cost, waited, started_at FROM calls").fetchone() == (
            "0.054399",
            '{"db:x":0.5,"pool:tokens":1.0}',
            "2026-11-01T12:00:00.000000+00:00",
        )
    await book.close()


def _table(difference: Any) -> str | None:
    """The table that a difference of Alembic's is about."""
    if isinstance(difference, list):  # of a column
        return difference[0][2]
    subject = difference[1]
    table = getattr(subject, "table", subject)
    return getattr(table, "name", None)
