"""A ledger that cannot be reached: said by name, nothing lost, nothing counted twice."""

from __future__ import annotations

import asyncio
import fcntl
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from ledger.houses import Owner, ask, over, part

from interlock.admission.ledger import PoolTerms, Reply
from interlock.admission.ledger.postgres import PostgresLedger, transaction
from interlock.admission.ledger.sqlite import SQLiteLedger
from interlock.catalog.entry import Limits
from interlock.errors import ConfigurationError, LeaseLostError, LedgerUnavailableError


async def test_a_file_that_cannot_be_opened_is_said_by_name(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, and long enough to be seen as none" * 20)
    for path in (tmp_path / "nowhere" / "ledger.db", tmp_path / "text.db"):
        ledger = SQLiteLedger(path, beats=False)
        with pytest.raises(LedgerUnavailableError, match=path.name):
            await ledger.open()
        await ledger.close()


async def test_whoever_waits_for_a_file_that_a_stopped_process_has_locked_is_not_lost_for_it(tmp_path: Path) -> None:
    lost = list[Exception]()
    ledger = SQLiteLedger(tmp_path / "ledger.db", ttl_s=1.6, on_lost=lost.append)
    await ledger.open()
    with (tmp_path / "ledger.db-lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as one has it that was stopped in the midst of a message
        await asyncio.sleep(1.6)  # its lease is over by then
    await ledger.heartbeat()
    assert lost == []
    await ledger.leave()
    await ledger.close()


async def test_a_server_that_is_not_there_is_said_by_name(unused_port: int) -> None:
    ledger = PostgresLedger(f"postgresql://someone:secret@127.0.0.1:{unused_port}/db", beats=False)
    for _ in range(2):  # the second time it does not even try: it was a moment ago
        with pytest.raises(LedgerUnavailableError, match="cannot be reached") as told:
            await ledger.open()
        assert "secret" not in str(told.value)
    await ledger.close()


async def test_a_server_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.admission.ledger.postgres.CONNECT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ledger = PostgresLedger(f"postgresql://127.0.0.1:{silent.getsockname()[1]}/db", beats=False)
        with pytest.raises(LedgerUnavailableError):
            await ledger.open()
        await ledger.close()


async def until_answered(owner: Owner, *asks: Any, **more: Any) -> Reply:
    """The same message again and again, as a courier does."""
    try:
        return await owner.say(*asks, **more)
    except LedgerUnavailableError:
        pass
    assert owner.last is not None
    for _ in range(500):
        try:
            return await owner.ledger.exchange(owner.last)
        except LedgerUnavailableError:
            await asyncio.sleep(0.02)
    raise AssertionError("the ledger did not come back")


async def opened(url: str, **limits: Any) -> Owner:
    owner = Owner(PostgresLedger(url, beats=False, ttl_s=600))
    await owner.ledger.open()
    await owner.ledger.register([PoolTerms(name="p", limits=Limits(**limits))])
    return owner


async def test_a_restarted_server_is_found_again_and_every_grant_counts_once(postgres: Any) -> None:
    owner = await opened(postgres.fresh(), tpm=600_000, max_concurrent=5000)

    restart = asyncio.create_task(asyncio.to_thread(postgres.restart))
    said = granted = 0
    while not restart.done() or said < 20:
        granted += len((await until_answered(owner, ask(part(10)), ask(part(10)))).granted)
        said += 1
        await asyncio.sleep(0.005)
    await restart
    assert granted == 2 * said
    state = await owner.state()
    assert state.slots == (5000, granted)
    assert state.levels[0].free == pytest.approx(600_000 - 10 * granted)
    await owner.ledger.close()


@pytest.mark.parametrize("others", [0, 3_900])
async def test_what_a_crashed_server_forgot_is_said_again(postgres: Any, others: int) -> None:
    """Also where others have taken what it was granted: a call that may have been sent is not refused afterwards."""
    url = postgres.fresh()
    owner, other = await opened(url, tpm=6000, max_concurrent=9), await opened(url, tpm=6000, max_concurrent=9)
    await owner.say(ask(part(1000)), ask(part(1000)))
    crash = await asyncpg.connect(url.replace("+asyncpg", ""))
    tables = ("ledger_pools", "ledger_owners", "ledger_totals")
    for table in tables:
        await crash.execute(f"create table kept_{table} as select * from {table}")
    await owner.say(ask(part(500)), settles=[over(1000, used=1000)])
    await owner.say(ask(part(300)))
    # It comes back as it was before these two.
    async with crash.transaction():
        for table in tables:
            await crash.execute(f"delete from {table}")
            columns = "fence, owner, since, alive_until, seq, names, granted, states" if "owners" in table else "*"
            into = f"({columns}) overriding system value" if "owners" in table else ""
            await crash.execute(f"insert into {table} {into} select {columns} from kept_{table}")
    await crash.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid()"
    )
    taken = [ask(part(others))] if others else []
    assert (await until_answered(other, *taken, watch=("p",))).pools["p"].slots == (9, 2 + len(taken))
    state = (await until_answered(owner, watch=("p",))).pools["p"]
    assert state.slots == (9, 3 + len(taken))  # two, one more, one ended, one more
    assert state.levels[0].free == pytest.approx(6000 - 2800 - others, abs=101)
    await crash.close()
    for one in (owner, other):
        await one.ledger.close()


async def test_whoever_uses_tables_that_were_dropped_is_lost_and_told_why(postgres: Any) -> None:
    url = postgres.fresh()
    owner, beating = await opened(url, tpm=600), await opened(url, tpm=600)
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    await connection.execute("drop table ledger_pools, ledger_owners, ledger_totals cascade")
    for asked in (owner.say(ask(part(1))), beating.ledger.heartbeat()):
        with pytest.raises(LeaseLostError, match=r"tables were dropped .* A new process makes the tables anew"):
            await asked
    after = await opened(url, tpm=600)
    assert (await after.say(ask(part(1)))).granted == (0,)
    await connection.close()
    for one in (owner, beating, after):
        await one.ledger.close()


async def test_two_that_open_an_empty_database_at_once_both_do(postgres: Any) -> None:
    url = postgres.fresh()
    owners = await asyncio.gather(*[opened(url, tpm=600) for _ in range(4)])
    assert len({owner.ledger.fence for owner in owners}) == 4
    for owner in owners:
        await owner.ledger.close()


async def test_b69_it_works_without_prepared_statements(postgres: Any) -> None:
    url = postgres.fresh()
    owner = Owner(PostgresLedger(url, beats=False, prepared=False))
    await owner.ledger.open()
    await owner.ledger.register([PoolTerms(name="p", limits=Limits(tpm=600))])
    assert (await owner.say(ask(part(10)))).granted == (0,)
    await owner.ledger.heartbeat()
    await owner.ledger.leave()
    await owner.ledger.close()


async def test_a_database_that_does_not_exist_is_no_outage(postgres: Any) -> None:
    ledger = PostgresLedger(postgres.url("nowhere"), beats=False)
    with pytest.raises(ConfigurationError, match="nowhere"):
        await ledger.open()
    await ledger.close()


async def test_one_that_is_stopped_while_it_has_a_pool_locked_is_cut_off(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.admission.ledger.postgres.IDLE_LIMIT_S", 0.1)
    url = postgres.fresh()
    stopped, other = await opened(url, tpm=600), await opened(url, tpm=600)
    ledger = stopped.ledger
    assert isinstance(ledger, PostgresLedger)

    granted = list[tuple[int, ...]]()

    async def stop_with_the_pool_locked() -> None:
        async with ledger._link.connection() as connection, transaction(connection):
            await ledger._books(connection, ["p"])
            granted.append((await other.say(ask(part(10)))).granted)  # it waits for no longer than that
            await connection.fetchval("select 1")

    with pytest.raises(LedgerUnavailableError):
        await stop_with_the_pool_locked()
    assert granted == [(0,)]
    assert (await until_answered(stopped, ask(part(10)))).granted == (0,)
    for one in (stopped, other):
        await one.ledger.close()


async def test_a_database_that_allows_no_long_wait_for_a_lock_is_asked_again(postgres: Any) -> None:
    url = postgres.fresh()
    first = await opened(url, tpm=600)
    blocker = await asyncpg.connect(url.replace("+asyncpg", ""))
    await blocker.execute(
        "do $$begin execute format('alter database %I set lock_timeout = 5', current_database()); end$$"
    )
    owner = await opened(url, tpm=600)
    async with blocker.transaction():
        await blocker.execute("select * from ledger_pools for update")
        with pytest.raises(LedgerUnavailableError, match="lock timeout"):
            await owner.say(ask(part(10)))
        with pytest.raises(LedgerUnavailableError, match="lock timeout"):
            await owner.ledger.register([PoolTerms(name="p", limits=Limits(tpm=700))])
    assert (await until_answered(owner)).seq == 2
    assert (await owner.say(ask(part(10)))).granted == (0,)
    await blocker.close()
    for one in (first, owner):
        await one.ledger.close()


async def test_a_role_that_may_not_make_the_tables_is_told_what_to_grant(postgres: Any) -> None:
    url = postgres.fresh()
    owner = await asyncpg.connect(url.replace("+asyncpg", ""))
    await owner.execute("drop role if exists interlock_poor")
    await owner.execute("create role interlock_poor login")
    ledger = PostgresLedger(url.replace("postgres@", "interlock_poor@"), beats=False)
    with pytest.raises(ConfigurationError, match="Grant the role"):
        await ledger.open()
    await ledger.close()
    await owner.execute("drop role interlock_poor")
    await owner.close()


async def test_a_database_made_anew_knows_nobody_of_the_old_one_though_fences_begin_again(postgres: Any) -> None:
    url = postgres.fresh()
    old = [await opened(url, max_concurrent=1) for _ in range(2)]
    admin = await asyncpg.connect(postgres.dsn())
    name = url.split("/")[3].partition("?")[0]
    await admin.execute(f"drop database {name} with (force)")
    await admin.execute(f"create database {name}")
    await admin.close()
    new = [await opened(url, max_concurrent=1) for _ in range(2)]
    assert [owner.ledger.fence for owner in new] == [owner.ledger.fence for owner in old]
    with pytest.raises(LeaseLostError):
        await until_answered(old[0], ask(part(1)))

    async def beats() -> None:
        while True:
            with suppress(LedgerUnavailableError):
                await old[1].ledger.heartbeat()
                return

    with pytest.raises(LeaseLostError):
        await beats()
    assert (await new[0].say(ask(part(1)))).granted == (0,)
    for one in (*old, *new):
        await one.ledger.close()
