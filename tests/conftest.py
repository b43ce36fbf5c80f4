"""What all tests stand on: nothing but loopback can be reached, and a seat that books what a template does with it."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from postgres_server import postgres

from interlock.admission.outcome import CallOutcome
from interlock.catalog.entry import ModelEntry
from interlock.catalog.spec import ModelBinding, ModelSpec
from interlock.clients.record import CallRecord

__all__ = ["postgres"]  # a fixture

# On top of Hypothesis's own profile (its `ci` one where CI is set): a busy machine is no failure.
settings.register_profile("interlock", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("interlock")


def pytest_addoption(parser: pytest.Parser) -> None:
    seeds = 1_000 if os.environ.get("CI") else 250
    parser.addoption(
        "--seeds", type=int, default=seeds, help="how many seeds tests/simulation runs (1,000 where CI is)"
    )
    parser.addoption("--seed", type=int, action="append", help="run tests/simulation with this seed only")


def _is_here(address: Any) -> bool:
    """Whether an address of `connect` is on this machine: a path, localhost, or a loopback number."""
    if not isinstance(address, tuple):
        return True
    host = address[0]
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@pytest.fixture(scope="session", autouse=True)
def only_loopback() -> Iterator[None]:
    """A test that reaches for another machine fails at once, and nothing leaves this one."""
    real = {name: getattr(socket.socket, name) for name in ("connect", "connect_ex")}

    def guarded(name: str) -> Any:
        def connect(self: socket.socket, address: Any) -> Any:
            if not _is_here(address):
                raise AssertionError(f"a test reached for {address!r}: only loopback is allowed")
            return real[name](self, address)

        return connect

    with pytest.MonkeyPatch.context() as patch:
        for name in real:
            patch.setattr(socket.socket, name, guarded(name))
        yield


@dataclass
class BookedPermit:
    input_tokens: int
    output_tokens: int
    unmetered: bool = False
    undeclared: bool = False
    sends: int = 0
    outcomes: list[CallOutcome] = field(default_factory=list)

    def sent(self) -> None:
        self.sends += 1

    def close(self, outcome: CallOutcome) -> None:
        self.outcomes.append(outcome)


@dataclass
class BookedSeat:
    binding: ModelBinding
    permits: list[BookedPermit] = field(default_factory=list)
    records: list[CallRecord] = field(default_factory=list)

    def permit(self, *, input_tokens: int, output_tokens: int, continuation: bool = False) -> BookedPermit:
        self.permits.append(BookedPermit(input_tokens, output_tokens))
        return self.permits[-1]

    def record(self, record: CallRecord) -> Awaitable[None]:
        self.records.append(record)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


@pytest.fixture
def make_seat() -> Any:
    def make(entry: ModelEntry) -> BookedSeat:
        spec = ModelSpec(kind=entry.kind)
        return BookedSeat(ModelBinding(spec=spec, entry=entry, input_tokens=100, output_tokens=0))

    return make


@pytest.fixture
def unused_port() -> int:
    """A port of loopback on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
