"""A web service of a user's own, with an elastic window and a breaker, in jobs against a server on loopback."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import pytest

from interlock import Job, JobRequirements, JobResources
from interlock.admission import MeteredAccount
from interlock.errors import ConfigurationError


class ElasticWindow:
    """How many requests a service takes at once, found out: one more after each window of successes, half after a
    failure. Three failures in a row close it for `closed_s` seconds."""

    def __init__(self, name: str, capacity: int, *, now: Callable[[], float] = time.monotonic) -> None:
        self.name, self.capacity, self.now = name, capacity, now
        self.window, self.out, self.failures, self.opens_at, self.closed_s = 4.0, 0.0, 0, -inf, 30.0

    # What the line asks.

    def free(self, now: float) -> float:
        return int(self.window) - self.out if now >= self.opens_at else 0

    def take(self, now: float, amount: float) -> None:
        self.out += amount

    def give(self, now: float, amount: float) -> None:
        self.out -= amount

    def fit_at(self, now: float, need: float) -> float:
        return self.opens_at if need <= int(self.window) - self.out else inf

    # What its jobs tell it.

    def succeeded(self) -> None:
        self.failures = 0
        self.window = min(self.window + 1 / self.window, self.capacity)

    def failed(self) -> None:
        self.failures += 1
        self.window = max(self.window / 2, 1.0)
        if self.failures >= 3:
            self.opens_at, self.failures = self.now() + self.closed_s, 0


class Watched(ElasticWindow):
    """It checks at each take that the window is kept, and keeps the most that was out."""

    most = 0.0

    def take(self, now: float, amount: float) -> None:
        super().take(now, amount)
        assert self.out <= int(self.window)
        self.most = max(self.most, self.out)


class Server:
    """A search service: it answers 200, or 503 while it is `down`, and counts how many it serves at once."""

    def __init__(self) -> None:
        self.down, self.at_once, self.served = False, 0, 0
        self.hold: asyncio.Event = asyncio.Event()
        self.hold.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.at_once += 1
        self.served += 1
        await self.hold.wait()
        self.at_once -= 1
        status = b"503 Service Unavailable" if self.down else b"200 OK"
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()


class SearchDown(Exception):
    pass


@dataclass(frozen=True)
class Search(Job[str]):
    query: str
    SERVICE: ClassVar[ElasticWindow]
    PORT: ClassVar[int]

    def requirements(self, needs: JobRequirements) -> None:
        needs.require("search", 1)

    async def run(self, resources: JobResources) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.PORT)
        writer.write(f"GET /?q={self.query} HTTP/1.1\r\nhost: search\r\n\r\n".encode())
        status = (await reader.readline()).split()[1]
        await reader.read()
        writer.close()
        if status != b"200":
            self.SERVICE.failed()
            raise SearchDown(self.query)
        self.SERVICE.succeeded()
        return "ok"


@pytest.fixture
async def search(world: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    server, service = Server(), Watched("search", 64, now=world.clock.now)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    monkeypatch.setattr(Search, "SERVICE", service, raising=False)
    monkeypatch.setattr(Search, "PORT", listening.sockets[0].getsockname()[1], raising=False)
    assert isinstance(service, MeteredAccount)
    async with world.runtime(accounts=(service,)) as runtime:
        yield runtime, server, service
    listening.close()
    await listening.wait_closed()


async def test_the_window_is_never_passed_and_grows_with_success(world: Any, search: Any) -> None:
    runtime, server, service = search
    server.hold.clear()
    handles = [runtime.submit(Search(str(i))) for i in range(40)]
    await world.run_until(lambda: server.at_once == 4)
    said = handles[-1].explain()
    assert said is not None
    assert (said.account, said.earliest_s) == ("search", None)
    assert runtime.statistics().admission.account("search").waiting == 36
    server.hold.set()
    for handle in handles:
        assert await world.until(handle) == "ok"
    assert 8 <= service.most <= int(service.window) <= 10
    assert service.out == 0


async def test_a_tripped_breaker_holds_everyone_until_the_instant_it_opens(world: Any, search: Any) -> None:
    runtime, server, service = search
    service.window, server.down = 1.0, True
    handles = [runtime.submit(Search(str(i))) for i in range(6)]
    for handle in handles[:3]:
        with pytest.raises(SearchDown):
            await world.until(handle)
    tripped_at, served = world.clock.now(), server.served
    assert service.opens_at == pytest.approx(tripped_at + 30.0, abs=0.01)
    said = [handle.explain() for handle in handles[3:]]
    assert [each.account for each in said] == ["search"] * 3
    assert said[0].earliest_s == pytest.approx(30.0, abs=0.01)
    assert "says that it fits in" in said[0].reason
    server.down = False
    await world.clock.advance(29.9)
    assert server.served == served, "nothing is sent to a service that is down"
    for handle in handles[3:]:
        assert await world.until(handle) == "ok"
    assert world.clock.now() == pytest.approx(tripped_at + 30.0, abs=0.1)


async def test_a_breaker_that_is_reset_by_hand_is_told_to_the_runtime(world: Any, search: Any) -> None:
    runtime, server, service = search
    service.opens_at = world.clock.now() + 1_000.0
    handle = runtime.submit(Search("now"))
    await world.clock.settle()
    assert server.served == 0
    began = world.clock.now()
    service.opens_at = began
    runtime.changed("search")
    assert await world.until(handle) == "ok"
    assert world.clock.now() < began + 1.0
    with pytest.raises(ConfigurationError, match="'other'"):
        runtime.changed("other")
