"""Who is alive: leases that lapse, owners whose process is gone, clocks that step."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection

from interlock.errors import LeaseLostError, RunHeldError
from interlock.runtime.journal.protocol import Intent, RunHead, RunStatus
from interlock.runtime.store import owners
from interlock.runtime.store.opening import open_book, read_store, upgrade_store
from interlock.runtime.store.owners import Incarnation
from interlock.runtime.store.schema import owners as table

NOBODY = Incarnation(host="elsewhere", place="", pid=1, born="")
HEAD = RunHead(run_id="r", pipeline="p", started_at=datetime(2026, 11, 1, tzinfo=UTC))


def ask(url: str, question: Callable[[Connection], Any]) -> Any:
    return read_store(url, question, writes=True)


def grows_old(url: str, owner: str, seconds: float = 100, ttl_s: float | None = None) -> None:
    """Older than its TTL, which is made shorter than the test server is old where `ttl_s` says so."""
    values = {"seen": table.c.seen - seconds, "ttl_s": table.c.ttl_s if ttl_s is None else ttl_s}
    ask(url, lambda c: c.execute(table.update().where(table.c.owner == owner).values(values)))


def test_an_owner_lives_until_its_ttl_and_then_never_again(store_url: str) -> None:
    upgrade_store(store_url)
    assert ask(store_url, lambda c: owners.enter(c, "a", NOBODY)) == 1
    assert ask(store_url, lambda c: owners.enter(c, "b", NOBODY)) == 2
    assert ask(store_url, lambda c: owners.alive(c, {"a", "b", "c"})) == {"a", "b"}
    assert ask(store_url, lambda c: owners.beat(c, "a"))
    assert not ask(store_url, lambda c: owners.give_up(c, "a"))
    grows_old(store_url, "a", 10)
    assert ask(store_url, lambda c: owners.alive(c, {"a"})) == {"a"}
    grows_old(store_url, "a", 10, ttl_s=0.001)
    assert ask(store_url, lambda c: owners.alive(c, {"a", "b"})) == {"b"}
    assert not ask(store_url, lambda c: owners.beat(c, "a")), "too late to go on as if nothing had been"
    assert ask(store_url, lambda c: owners.give_up(c, "a"))
    assert ask(store_url, lambda c: owners.give_up(c, "unheard of"))
    ask(store_url, lambda c: owners.leave(c, "b"))
    assert ask(store_url, lambda c: owners.alive(c, {"a", "b"})) == set()


def test_fences_only_grow_although_old_rows_are_dropped(store_url: str) -> None:
    upgrade_store(store_url)
    fences = []
    for name in "abcd":
        fences.append(ask(store_url, lambda c, name=name: owners.enter(c, name, NOBODY)))
        grows_old(store_url, name, 2 * owners.FORGOTTEN_AFTER_S)
    assert fences == [1, 2, 3, 4]
    assert ask(store_url, lambda c: c.execute(table.select()).all())[0].fence >= 3, "the others are forgotten"


def test_b61_no_step_of_the_wall_clock_makes_anybody_live_or_die(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade_store(store_url)
    ask(store_url, lambda c: owners.enter(c, "a", NOBODY))
    real = time.time
    for step_s in (-600, 600, 3_600 * 24):
        monkeypatch.setattr(time, "time", lambda step_s=step_s: real() + step_s)
        assert ask(store_url, lambda c: owners.alive(c, {"a"})) == {"a"}


def test_b61_whoever_was_seen_before_the_host_was_started_anew_is_dead(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    upgrade_store(url)
    for name in ("a", "b"):
        ask(url, lambda c, name=name: owners.enter(c, name, NOBODY))
    ask(url, lambda c: c.execute(table.update().where(table.c.owner == "a").values(epoch="an earlier boot")))
    grows_old(url, "b", -5_000)  # where boots cannot be told apart, its time was later than it is now
    assert ask(url, lambda c: owners.alive(c, {"a", "b"})) == set()


def test_nobody_dies_because_the_server_was_down(postgres: Any) -> None:
    """While it is down nobody can be heard, so silence counts from its start."""
    url = postgres.fresh()
    upgrade_store(url)
    for name in ("silent", "given up", "longer"):
        ask(url, lambda c, name=name: owners.enter(c, name, NOBODY))
    an_hour_s = 3_600.0
    grows_old(url, "silent", 2 * an_hour_s, ttl_s=an_hour_s)  # the server is younger than that
    grows_old(url, "given up", 2 * an_hour_s, ttl_s=an_hour_s)
    grows_old(url, "longer", 2 * an_hour_s, ttl_s=0.001)
    ask(url, lambda c: owners.leave(c, "given up"))
    assert ask(url, lambda c: owners.alive(c, {"silent", "given up", "longer"})) == {"silent"}
    assert ask(url, lambda c: owners.beat(c, "silent"))


@pytest.mark.skipif(sys.platform != "linux", reason="only there can one see when a process was started")
def test_a_process_that_is_gone_is_told_from_one_that_has_its_number() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = Incarnation.here()
    there = replace(here, pid=process.pid, born=owners._born(process.pid))
    assert not here.gone
    assert not there.gone
    assert replace(there, born="1").gone, "another process had this number before"
    assert not replace(there, place="another container", born="1").gone, "its number means nothing here"
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert there.gone, "a zombie"
    process.communicate()
    assert there.gone


CRASHER = """
import asyncio, os, sys
from datetime import UTC, datetime
from interlock.runtime.journal.protocol import RunHead
from interlock.runtime.store.opening import open_book
async def main():
    book = open_book(sys.argv[1])
    await book.journal.create(RunHead(run_id="r", pipeline="p", started_at=datetime.now(UTC)), owner=book.owner)[1]
    print("made", flush=True)
    sys.stdin.readline()
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the TTL has to pass")
async def test_b34_a_killed_process_gives_its_runs_back_at_once(store_url: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CRASHER, store_url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"made\n"
    book = open_book(store_url)
    with pytest.raises(RunHeldError):
        await book.journal.begin(HEAD, owner=book.owner, reopen=[RunStatus.RUNNING])
    process.kill()
    await process.communicate()
    taken = await book.journal.begin(HEAD, owner=book.owner, reopen=[RunStatus.RUNNING])
    assert taken.claim is not None
    assert taken.claim.fence == 2
    await book.close()


async def test_b34_a_process_that_was_frozen_too_long_is_told_once_and_writes_no_more(store_url: str) -> None:
    """Stopped and continued: its thread finds the store believing it dead."""
    book = open_book(store_url, ttl_s=2)
    told: list[LeaseLostError] = []
    heard = threading.Event()
    book.on_lost(lambda error: (told.append(error), heard.set()))
    claim, made = book.journal.create(HEAD, owner=book.owner)
    await made
    grows_old(store_url, book.owner, ttl_s=0.001)
    assert await asyncio.to_thread(heard.wait, 30)
    with pytest.raises(LeaseLostError):
        await book.journal.intend(claim, Intent(step_id="0", fingerprint="", job="j", attempt=1, at=HEAD.started_at))
    book.on_lost(told.append)
    assert len(told) == 2, "whoever listens late hears of it at once"
    assert told[0] is told[1]
    await book.close()


async def test_a_lease_lives_as_long_as_its_book_and_is_given_back_with_it(store_url: str) -> None:
    book = open_book(store_url, ttl_s=2)
    seen = table.select().where(table.c.owner == book.owner)
    first = ask(store_url, lambda c: c.execute(seen).one())
    while (now := ask(store_url, lambda c: c.execute(seen).one())).seen == first.seen:
        await asyncio.to_thread(time.sleep, 0.01)
    assert not now.lost
    await book.close()
    assert ask(store_url, lambda c: c.execute(seen).one()).lost


async def test_a_lease_whose_thread_fails_is_lost_and_says_so(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from interlock.runtime.store.lease import Lease

    def fails(*_: Any) -> None:
        raise RuntimeError("a fault of the thread's own")

    lost, heard = list[LeaseLostError](), threading.Event()
    monkeypatch.setattr(Lease, "_try", fails)
    book = await asyncio.to_thread(open_book, store_url, ttl_s=0.2)
    try:
        book.on_lost(lambda error: (lost.append(error), heard.set()))  # type: ignore[func-returns-value, return-value, arg-type]
        assert await asyncio.to_thread(heard.wait, 10)
        assert len(lost) == 1
    finally:
        await book.close()


async def test_b34_who_was_kept_out_and_tried_all_along_lives_on_unless_it_was_given_up(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, real = threading.Barrier(2), owners.beat

    def fails(connection: Connection, _: str) -> None:
        with suppress(threading.BrokenBarrierError):
            tried.wait(30)
        connection.exec_driver_sql("select of_nothing")

    book = await asyncio.to_thread(open_book, store_url, ttl_s=2)
    lease = book._lease
    assert lease is not None
    claim, made = book.journal.create(HEAD, owner=book.owner)
    await made
    monkeypatch.setattr(owners, "beat", fails)
    await asyncio.to_thread(tried.wait, 30)
    await asyncio.to_thread(tried.wait, 30)  # the first has failed by now
    tried.abort()
    assert lease.kept_out
    intent = Intent(step_id="0", fingerprint="", job="j", attempt=1, at=HEAD.started_at)
    grows_old(store_url, book.owner, ttl_s=1.0)
    await book.journal.intend(claim, intent)
    assert lease.lost is None
    grows_old(store_url, book.owner, ttl_s=0.001)
    assert ask(store_url, lambda c: owners.give_up(c, book.owner))
    with pytest.raises(LeaseLostError):
        await book.journal.intend(claim, intent)
    lease._tried -= 100  # it was frozen: others may have come and gone
    assert not lease.kept_out
    monkeypatch.setattr(owners, "beat", real)
    await book.close()


def test_who_was_given_up_does_not_come_back(store_url: str) -> None:
    upgrade_store(store_url)
    ask(store_url, lambda c: owners.enter(c, "a", NOBODY))
    grows_old(store_url, "a", ttl_s=0.001)
    assert ask(store_url, lambda c: owners.come_back(c, "a"))
    grows_old(store_url, "a", ttl_s=0.001)
    assert ask(store_url, lambda c: owners.give_up(c, "a"))
    assert not ask(store_url, lambda c: owners.come_back(c, "a"))
