"""A process that is frozen for longer than its lease and wakes up: it commits nothing, journals nothing, and stops."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

pytestmark = pytest.mark.processes

PROGRAM = Path(__file__).parent / "frozen.py"
LEASE_S = 4.0


@pytest.fixture(params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The store's URL and the user's."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db", f"sqlite+aiosqlite:///{tmp_path}/users.db"
    postgres = request.getfixturevalue("postgres")
    return postgres.fresh(), postgres.fresh()


def life(store: str, users: str, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), store, users, str(LEASE_S), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def saved(users: str) -> list[str]:
    engine = create_async_engine(users)
    try:
        async with engine.connect() as connection:
            return sorted((await connection.execute(sa.text("select text from saved"))).scalars())
    finally:
        await engine.dispose()


async def test_b34_what_wakes_up_after_its_lease_commits_nothing_and_stops(databases: tuple[str, str]) -> None:
    store, users = databases
    frozen = life(store, users, 0.5)
    assert frozen.stdout is not None
    assert frozen.stdout.readline() == "ready\n"
    frozen.send_signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE_S + 1.0)
    if users.startswith("sqlite"):  # the frozen one has the file locked: it wakes up first
        frozen.send_signal(signal.SIGCONT)
        out, err = frozen.communicate(timeout=60)
        assert out == "stopped LeaseLostError\n", (out, err[-2_000:])
        assert await saved(users) == ["one"]
    other = life(store, users, 0.5)
    assert other.communicate(timeout=60)[0] == "ready\ndone ['one', 'two']\n"
    if not users.startswith("sqlite"):
        frozen.send_signal(signal.SIGCONT)
        out, err = frozen.communicate(timeout=60)
        assert out == "stopped LeaseLostError\n", (out, err[-2_000:])
    assert await saved(users) == ["one", "two"]
