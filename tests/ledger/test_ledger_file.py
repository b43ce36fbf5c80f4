"""A ledger's file: locked by a process that is stopped, deleted under those that use it, made by another release."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from ledger.houses import Owner, ask, part

from interlock.admission.ledger import PoolTerms
from interlock.admission.ledger.sqlite import BUSY_S, SQLiteLedger
from interlock.catalog.entry import Limits
from interlock.errors import ConfigurationError, LeaseLostError, LedgerUnavailableError

LOCK = """
import fcntl, sys
lock = open(sys.argv[1], "a")
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("sqlite", "owners"):
        monkeypatch.setattr(f"interlock.admission.ledger.{module}.LAST_WORDS_S", 0.1)


@pytest.fixture
def holder(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A process that is stopped while it has the file locked; from then on nobody waits long for the file."""
    command, pipe = [sys.executable, "-S", "-E", "-c", LOCK, f"{path}-lock"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "locked\n"
            process.send_signal(signal.SIGSTOP)
            monkeypatch.setattr("interlock.admission.ledger.sqlite.ANSWER_S", 0.1)
            yield process
        finally:
            process.kill()


async def opened(path: Path, **settings: object) -> Owner:
    owner = Owner(SQLiteLedger(path, **{"beats": False, **settings}))  # type: ignore[arg-type]
    await owner.ledger.open()
    await owner.ledger.register([PoolTerms(name="p", limits=Limits(tpm=600, max_concurrent=1))])
    return owner


async def test_an_end_does_not_wait_for_a_stopped_process_that_has_the_file_locked(
    path: Path, request: pytest.FixtureRequest
) -> None:
    owner = await opened(path, beats=True, ttl_s=0.4)
    holder: subprocess.Popen[str] = request.getfixturevalue("holder")
    await asyncio.sleep(0.15)  # and its heart waits for it by now
    since = monotonic()
    with pytest.raises(LedgerUnavailableError) as told:
        await owner.ledger.leave()
    assert f"process {holder.pid} is stopped and keeps it locked" in str(told.value)
    assert f"kill -CONT {holder.pid}" in str(told.value)
    await owner.ledger.close()
    assert monotonic() - since < BUSY_S / 2


async def test_a_message_that_a_lock_holds_up_is_unavailable_and_counts_once(
    path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await opened(path)
    holder: subprocess.Popen[str] = request.getfixturevalue("holder")
    with pytest.raises(LedgerUnavailableError, match="has not answered"):
        await owner.say(ask(part(100)))
    message = owner.last
    assert message is not None
    for _ in range(3):
        with pytest.raises(LedgerUnavailableError):
            await owner.ledger.exchange(message)
    holder.kill()
    holder.wait()
    monkeypatch.undo()
    assert (await owner.ledger.exchange(message)).granted == (0,)
    assert (await owner.state()).slots == (1, 1)
    await owner.ledger.close()


@pytest.mark.parametrize("again", [False, True])
async def test_whoever_uses_a_file_that_was_deleted_is_lost_and_shares_nothing_more(path: Path, again: bool) -> None:
    lost = list[LeaseLostError]()
    owner = await opened(path, on_lost=lost.append)
    assert (await owner.say(ask(part(1)))).granted == (0,)
    for name in path.parent.glob("ledger.db*"):
        name.unlink()
    if again:  # the new file has an owner of the same fence
        other = await opened(path)
        assert other.ledger.fence == owner.ledger.fence
        assert (await other.say(ask(part(1)))).granted == (0,)
    with pytest.raises(LeaseLostError, match=r"ledger\.db was deleted or replaced") as told:
        owner.ledger._beat_here(True)  # type: ignore[attr-defined]
    assert "A new process may go on" in str(told.value)
    with pytest.raises(LeaseLostError, match="deleted or replaced"):
        await owner.say(ask(part(1)))
    assert len(lost) == 1
    if again:
        assert (await other.state()).slots == (1, 1)
        await other.ledger.close()
    owner.ledger._beats_over()  # type: ignore[attr-defined]
    await owner.ledger.close()


async def test_a_file_of_another_release_is_left_alone(path: Path) -> None:
    await (await opened(path)).ledger.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("pragma user_version").fetchone() == (1,)
        connection.execute("pragma user_version = 7")
    connection.close()
    ledger = SQLiteLedger(path, beats=False)
    with pytest.raises(ConfigurationError, match="another release"):
        await ledger.open()
    await ledger.close()
