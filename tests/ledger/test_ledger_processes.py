"""Real processes on one ledger: killed, stopped, with clocks that are wrong, all at once."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from ledger.houses import Owner, ask, over, part
from ledger.owner_process import ledger_of

from interlock.admission.ledger import PoolTerms
from interlock.catalog.entry import Limits

TTL_S = 3.0
CHILD = Path(__file__).with_name("owner_process.py")


class Child:
    """An owner in another process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, url: str, wall_offset_s: float = 0.0) -> Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(CHILD), url, str(TTL_S), str(wall_offset_s),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        child = cls(process)
        assert await child.line() == "ready"
        return child

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()

    async def do(self, what: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n".encode())
        answer: dict[str, Any] = json.loads(await self.line())
        return answer

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


class Place:
    def __init__(self, url: str) -> None:
        self.url = url
        self.children: list[Child] = []
        self.owners: list[Owner] = []

    async def child(self, wall_offset_s: float = 0.0) -> Child:
        child = await Child.start(self.url, wall_offset_s)
        self.children.append(child)
        return child

    async def owner(self, **limits: Any) -> Owner:
        owner = Owner(ledger_of(self.url, TTL_S))
        await owner.ledger.open()
        await owner.ledger.register([PoolTerms(name="p", limits=Limits(**limits))])
        self.owners.append(owner)
        return owner


@pytest.fixture(params=["sqlite", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "sqlite":
        made = Place(str(tmp_path / "ledger.db"))
    else:
        made = Place(request.getfixturevalue("postgres").fresh())
    yield made
    for child in made.children:
        await child.end()
    for owner in made.owners:
        await owner.ledger.close()


async def granted_within(owner: Owner, seconds: float) -> float:
    """Ask for one slot until it is granted; returns after how many seconds it was."""
    one, since = ask(part(1)), monotonic()
    while not (await owner.say(one)).granted:
        assert monotonic() - since < seconds, "it did not come back"
        await asyncio.sleep(0.02)
    return monotonic() - since


async def test_b34_a_killed_and_a_stopped_process_lose_what_they_held(place: Place) -> None:
    alive = await place.owner(max_concurrent=2)
    killed, stopped = await place.child(), await place.child()
    assert (await killed.do("ask 1 1"))["granted"] == (await stopped.do("ask 1 1"))["granted"] == 1
    assert (await alive.say(ask(part(1)))).granted == ()
    killed.process.kill()
    stopped.process.send_signal(signal.SIGSTOP)
    for _ in range(2):  # within the TTL (test_ledger_owners.py has the bound itself), and what a busy machine adds
        await granted_within(alive, 1.5 * TTL_S)
    assert (await alive.state()).slots == (2, 2)
    stopped.process.send_signal(signal.SIGCONT)
    assert await stopped.do("end 1") == {"error": "LeaseLostError"}
    assert await stopped.do("ask 1 1") == {"error": "LeaseLostError"}
    assert (await alive.state()).slots == (2, 2)


async def test_one_that_was_stopped_alone_knows_it_by_itself(place: Place) -> None:
    owner = await place.owner(max_concurrent=2)
    alone = await place.child()
    await owner.ledger.leave()
    alone.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(TTL_S)  # its lease is over, and nobody is there to give it up
    alone.process.send_signal(signal.SIGCONT)
    assert await alone.do("ask 1 1") == {"error": "LeaseLostError"}


async def test_b27_every_reservation_of_many_processes_counts_once(place: Place) -> None:
    owner = await place.owner(tpm=3_000_000, max_concurrent=1000)
    children = await asyncio.gather(*[place.child() for _ in range(3)])
    answers = await asyncio.gather(*[child.do("many 40 3 100") for child in children])
    assert [answer["granted"] for answer in answers] == [120, 120, 120]
    state = await owner.state()
    assert state.slots == (1000, 360)
    assert state.levels[0].free == pytest.approx(3_000_000 - 36_000)  # all of it unsent: nothing refills


async def test_clocks_ten_minutes_apart_change_nothing(place: Place) -> None:
    ahead = await place.child(600.0)
    owner = await place.owner(tpm=600, max_concurrent=9)
    behind = await place.child(-600.0)
    assert (await owner.say(ask(part(600)))).granted == (0,)
    await owner.say(settles=[over(600)])  # from now on it refills, for all at the same pace
    for child in (ahead, behind):
        answer = await child.do("ask 60 1")
        assert answer["granted"] == 0
        assert 4 < answer["fit_in_s"] < 13.1
    await owner.ledger.heartbeat()
    assert await ahead.do("leave") == await behind.do("leave") == {}
    assert (await owner.state()).slots == (9, 0)
