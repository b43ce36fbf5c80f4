"""Where a store is: its URL taken apart, the name it has in messages (never a password), what to do where it fails."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from interlock.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy import URL

Kind = Literal["sqlite", "postgresql"]

_WRITE = "write it as sqlite:///interlock.db or postgresql://user@host/database"
_DRIVERS: dict[str, tuple[Kind, str]] = {
    "sqlite": ("sqlite", "sqlite"),
    "postgresql": ("postgresql", "postgresql+asyncpg"),
    "postgres": ("postgresql", "postgresql+asyncpg"),
}
#: Options that SQLAlchemy keeps to itself.
_OF_SQLALCHEMY = "prepared_statement_"
#: What the server says, by its code, and what to do then.
_ADVICE = {
    "28P01": "Check the user and the password",
    "28000": "Check the user, and what the server lets in (pg_hba.conf)",
    "3D000": "Create the database first; the store makes its tables in it",
    "42501": "The user may not make tables there: let its owner run `interlock store upgrade` once",
    "SQLITE_NOTADB": "Choose another path: the file there is something else",
    "SQLITE_FULL": "Make room on its disk, or choose another path",
    "SQLITE_BUSY": "Another program has the file locked: end its transaction",
    "SQLITE_ERROR": "Its tables are not as this version left them: put back a copy, or choose another path",
}
#: A table, a schema or a column that was there when the store was opened.
_NO_TABLE = {"42P01", "3F000", "42703"}
_GONE = (
    "Its tables were dropped or replaced while this process used it: nothing more can be recorded here. End the "
    "processes that use it, put back a copy, and start them again (without one they begin with an empty store)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A store's place. `name` is its URL without a password and, on Postgres, without options."""

    url: URL = field(repr=False)
    kind: Kind
    name: str

    @classmethod
    def of(cls, text: str) -> Place:
        """Raises StoreError for what is no URL, or of a database this version cannot store in."""
        from sqlalchemy.engine import make_url

        try:
            url = make_url(text)
            url.render_as_string()  # a lone surrogate, from a shell's bytes that are no UTF-8, cannot be written
        except Exception:
            raise StoreError(f"the store's URL cannot be read; {_WRITE}") from None
        kind, driver = _DRIVERS.get(url.get_backend_name() or url.drivername, (None, ""))
        if kind is None:
            name = url.set(query={}).render_as_string(hide_password=True)
            raise StoreError(f"the store {name} is of a kind this version cannot use: {_WRITE}")
        # Options of a server may hold a password, too; those of a file are part of its name.
        shown = url if kind == "sqlite" else url.set(query={})
        if kind == "postgresql":
            url = _with_asyncpg_names(url)
        return cls(url=url.set(drivername=driver), kind=kind, name=shown.render_as_string(hide_password=True))

    @property
    def path(self) -> Path | None:
        """The file of a store that is one."""
        database = self.url.database
        return Path(database) if self.kind == "sqlite" and database and database != ":memory:" else None

    @property
    def dsn(self) -> str:
        """A server's URL for asyncpg itself, which reads it as libpq does. The password stands in it."""
        query = {name: value for name, value in self.url.query.items() if not name.startswith(_OF_SQLALCHEMY)}
        mode = query.pop("ssl", None)
        if mode is not None:
            query["sslmode"] = mode
        return self.url.set(drivername="postgresql", query=query).render_as_string(hide_password=False)

    @property
    def prepares(self) -> bool:
        """Whether statements may be prepared: the URL says so where a pooler stands between that has none of it."""
        return self.url.query.get("prepared_statement_cache_size") != "0"

    @property
    def in_memory(self) -> bool:
        return self.kind == "sqlite" and self.path is None

    def to_read(self) -> Place:
        """For whoever only looks: the same, or the file as it lies where nothing may be written beside it. SQLite would
        make its write-ahead log anew there, even to read. A log that is there holds rows, and is never passed over."""
        path = self.path
        if path is None or self.url.query or os.access(path.absolute().parent, os.W_OK):
            return self
        log, shared = (path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))
        if shared.exists() or (log.exists() and log.stat().st_size > 0):
            return self
        file = f"file:{quote(str(path.absolute()))}"
        return replace(self, url=self.url.set(database=file, query={"immutable": "1", "uri": "true"}))

    def refused(self, error: BaseException) -> StoreError:
        """Why it cannot be opened, as one sentence."""
        return StoreError(f"the store {self.name} cannot be opened: {reason(error)}. {self._advice(error)}")

    def _advice(self, error: BaseException) -> str:
        if self.kind == "postgresql":
            return _ADVICE.get(sqlstate(error), "Check that the server runs and can be reached from here")
        parent = None if self.path is None else self.path.absolute().parent
        if parent is not None and not parent.is_dir():
            return f"The folder {parent} does not exist: make it, or choose another path"
        code = getattr(getattr(error, "orig", error), "sqlite_errorname", "SQLITE_ERROR")
        return _ADVICE.get(code, "Choose a path that can be written to, or set store=None to keep no records")


def now_gone(error: BaseException) -> str:
    """What to do where a store's tables went away while it was in use; "" where that is not what is wrong."""
    dropped = sqlstate(error) in _NO_TABLE or "no such table" in str(getattr(error, "orig", error))
    return _GONE if dropped else ""


def reason(error: BaseException) -> str:
    """What the driver said, without SQLAlchemy's frame (the statement and its parameters hold answers)."""
    inner: BaseException = getattr(error, "orig", None) or error
    inner = inner.__cause__ if sqlstate(error) and inner.__cause__ is not None else inner
    said = " ".join(str(inner).split()).rstrip(".")
    return said or type(inner).__name__


def sqlstate(error: BaseException) -> str:
    """Postgres's code of an error, through whatever it is wrapped in; "" where there is none."""
    seen: BaseException | None = error
    for _ in range(4):
        if seen is None:
            break
        state = getattr(seen, "sqlstate", None)
        if isinstance(state, str) and state:
            return state
        seen = getattr(seen, "orig", None) or seen.__cause__
    return ""


def _with_asyncpg_names(url: URL) -> URL:
    """libpq's `sslmode` is `ssl` to asyncpg; the URLs that providers of databases hand out have the former."""
    query: dict[str, Any] = dict(url.query)
    mode = query.pop("sslmode", None)
    query.pop("channel_binding", None)
    if mode is not None:
        query.setdefault("ssl", mode)
    return url.set(query=query)
