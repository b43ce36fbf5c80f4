"""Every store behind the one interface: SQLite held in memory, read at each search, with sqlite-vec; Postgres."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from search.places import Place

from interlock.runtime.search import sqlite as sqlite_store, sqlite_tables


@pytest.fixture
def with_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """An SQLite that can load extensions, in the place of Python's own where that cannot."""
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        driver = pytest.importorskip("pysqlite3.dbapi2", reason="no SQLite here can load an extension")
        monkeypatch.setattr(sqlite_store, "sqlite3", driver)
        monkeypatch.setattr(sqlite_tables, "sqlite3", driver)


@pytest.fixture
def without_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_tables, "load_extension", lambda connection: False)


def _place(kind: str, request: pytest.FixtureRequest, folder: Path) -> Place:
    if kind == "postgres":
        return Place(kind, request.getfixturevalue("postgres").fresh(), 0)
    request.getfixturevalue("with_extension" if kind == "sqlite-vec" else "without_extension")
    return Place(kind, f"sqlite:///{folder}/docs.db", 64 if kind == "held" else 0)


@pytest.fixture(params=("held", "read", "sqlite-vec", "postgres"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return _place(request.param, request, tmp_path)


@pytest.fixture(params=("held", "postgres"))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A file and a server, for what does not depend on how a file is searched."""
    return _place(request.param, request, tmp_path)
