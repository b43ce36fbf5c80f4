"""What is measured: who reserves where, from how many processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`way` is a program of `ways/`, `mode` what it is told. `place`: where the level is kept."""

    title: str
    way: str
    place: str
    mode: str = ""
    callers: int = 64
    processes: int = 4
    wanted: str = ""

    @property
    def foreign(self) -> bool:
        """Whether it needs the peers' environment."""
        return self.way == "throttled"


ROWS = (
    Row(title="Interlock, PostgreSQL", way="ours", place="postgres", wanted="20,000"),
    Row(title="an UPDATE each, PostgreSQL", way="update_each", place="postgres"),
    Row(title="token-throttle, Redis", way="throttled", place="redis", mode="redis"),
    Row(title="Interlock, SQLite", way="ours", place="sqlite", wanted="40,000"),
    Row(title="a transaction each, SQLite", way="update_each", place="sqlite"),
    Row(title="token-throttle, SQLite", way="throttled", place="sqlite", mode="sqlite"),
    Row(title="Interlock, PostgreSQL", way="ours", place="postgres", callers=8, processes=2, wanted="p99 5 ms"),
    Row(title="an UPDATE each, PostgreSQL", way="update_each", place="postgres", callers=8, processes=2),
)
