"""The bench of the contract suite, before servers that nobody here wrote."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, fields
from typing import Any

import pytest

from interlock.clients.bound import BoundLLMClient

from ..conftest import WIRES, Bench, FakeSeat, Wire
from .servers import SERVERS, Absent, ThirdParty


class Elsewhere(Wire):
    """A wire at the address of one of these servers."""

    def url(self, provider: Any) -> str:
        return str(provider.url(self.id))


@dataclass(frozen=True)
class Spoken:
    """A wire, and the server that speaks it."""

    wire: Wire
    server: type[ThirdParty]

    @property
    def id(self) -> str:
        return f"{self.server.name}-{self.wire.id}"

    @property
    def ways(self) -> tuple[bool, ...]:
        """Whole, and streamed where the server's streams are of the wire."""
        return (False,) if self.wire.id in self.server.whole else (False, True)


def spoken(*needs: str) -> list[Spoken]:
    """Every wire of every server that can do all of this."""
    return [
        Spoken(Elsewhere(**{field.name: getattr(wire, field.name) for field in fields(wire)}), server)
        for server in SERVERS
        if server.can.issuperset(needs)
        for wire in WIRES
        if wire.id in server.wires
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "spoken" in metafunc.fixturenames:
        needs = [need for mark in metafunc.definition.iter_markers("needs") for need in mark.args]
        found = [one for one in spoken(*{*needs} - {"stream"}) if "stream" not in needs or True in one.ways]
        if "streamed" not in metafunc.fixturenames:
            metafunc.parametrize("spoken", found, ids=[one.id for one in found])
            return
        pairs = [(one, streamed) for one in found for streamed in one.ways]
        ids = [f"{one.id}-{'streamed' if streamed else 'whole'}" for one, streamed in pairs]
        metafunc.parametrize(("spoken", "streamed"), pairs, ids=ids)


@pytest.fixture(scope="session")
def running() -> Iterator[dict[type[ThirdParty], ThirdParty | Absent]]:
    """The servers, each started when it is first asked for, stopped at the end whatever happened."""
    servers: dict[type[ThirdParty], ThirdParty | Absent] = {}
    yield servers
    for server in servers.values():
        if isinstance(server, ThirdParty):
            server.stop()


@pytest.fixture
def server(spoken: Spoken, running: dict[type[ThirdParty], ThirdParty | Absent]) -> ThirdParty:
    """Fresh. Where it is not installed the test is skipped, but not in CI."""
    if spoken.server not in running:
        try:
            running[spoken.server] = spoken.server()
        except Absent as absent:
            running[spoken.server] = absent
    found = running[spoken.server]
    if isinstance(found, Absent):
        if os.environ.get("CI"):
            pytest.fail(f"{found}; in CI nothing is skipped")
        pytest.skip(str(found))
    found.reset()
    return found


class ThirdBench(Bench):
    """Clients of the wire under test, before the server under test."""

    def __init__(self, spoken: Spoken, server: ThirdParty) -> None:
        super().__init__(server)  # type: ignore[arg-type]
        self.spoken, self.server = spoken, server

    def make(self, **how: Any) -> tuple[BoundLLMClient, FakeSeat]:
        """What is scripted must be scripted before: with one of them the model's name is the script."""
        wire = self.spoken.wire
        prefix = wire.entry.get("wire_model_id", "").rpartition("/")[0]
        model = f"{prefix}/{self.server.model}" if prefix else self.server.model
        settings = {"options": {"api_version": "v1beta"}} if wire.speaks == "gemini" else None
        return self.client(wire, wire_model_id=model, settings=settings, **how)


@pytest.fixture
async def third(spoken: Spoken, server: ThirdParty) -> AsyncIterator[ThirdBench]:
    made = ThirdBench(spoken, server)
    yield made
    await made.aclose()
