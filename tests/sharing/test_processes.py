"""Four processes and 64 callers on one pool, through the Runtime, the real SDK and a provider whose limits bind."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresTestServer
from sharing.calling_process import CallingProcess

from interlock.clients.simulator import PublishedLimits, SimulatedProvider, Step

pytestmark = pytest.mark.processes

LIMITS = PublishedLimits(rpm=900, input_tpm=100_000, output_tpm=60_000, burst_s=2)
CATALOG = """\
providers:
  simulated: {{base_url: "{url}"}}
models:
  - id: small
    grade: SMALL
    provider: simulated
    wire_model_id: small
    context_window: 200000
    max_output_tokens: 4096
    limits: {{rpm: 900, input_tpm: 100000, output_tpm: 60000, burst_s: 2}}
    accounting: {{output: expected}}
pins: {{SMALL: [small]}}
"""
SECONDS = 8


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    server: PostgresTestServer = request.getfixturevalue("postgres")
    return server.fresh()


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[SimulatedProvider]:
    with SimulatedProvider(limits={"small": LIMITS}, latency_s=0.3).in_thread() as provider:
        (tmp_path / "catalog.yaml").write_text(CATALOG.format(url=provider.base_url))
        yield provider


def started(tmp_path: Path, ledger: str, **ask: Any) -> CallingProcess:
    return CallingProcess(
        {"catalog": str(tmp_path / "catalog.yaml"), "ledger": ledger, "words": 20, "output": 256, **ask}
    )


def go(*children: CallingProcess) -> None:
    """Let them begin, all at once, when all are ready."""
    for child in children:
        said = child.hear()
        assert said == "ready", said["error"][-3_000:]
    for child in children:
        child.go()


def figures(child: CallingProcess) -> dict[str, Any]:
    said = dict(child.hear())
    assert "error" not in said, said["error"][-3_000:]
    assert child.ended() == 0
    return said


def test_four_processes_stay_within_one_limit_and_use_it(
    tmp_path: Path, ledger: str, provider: SimulatedProvider
) -> None:
    children = [started(tmp_path, ledger, callers=16, seconds=SECONDS) for _ in range(4)]
    go(*children)
    told = [figures(child) for child in children]
    answered = [each["answered"] for each in told]
    assert provider.refused == 0, f"{provider.refused} of {provider.count} were refused"
    assert sum(answered) + 4 == provider.count
    # Whoever speaks first takes of a full bucket what it can use; what is refilled, once all are at it, is shared.
    since = max(min(each["ended_at"]) for each in told) + 1.0
    until = min(max(each["ended_at"]) for each in told) - 1.0
    shared = [sum(since <= at <= until for at in each["ended_at"]) for each in told]
    assert all(abs(each - sum(shared) / 4) <= 0.25 * sum(shared) / 4 for each in shared), (shared, answered)
    served = provider.goodput("small", since_s=since, until_s=until)
    assert served.fraction >= 0.97, served


def test_a_database_that_restarts_under_load_loses_no_call_and_lets_none_through(
    tmp_path: Path, provider: SimulatedProvider, postgres: PostgresTestServer
) -> None:
    ledger = postgres.fresh()
    children = [started(tmp_path, ledger, callers=8, seconds=5) for _ in range(2)]
    go(*children)
    for _ in range(2):
        time.sleep(1.5)
        postgres.restart()
    told = [figures(child) for child in children]
    assert all(each["answered"] >= 8 for each in told), told
    assert provider.refused == 0
    assert provider.count == sum(each["answered"] for each in told) + 2


def test_a_process_that_was_frozen_for_longer_than_its_lease_stops_its_work(
    tmp_path: Path, ledger: str, provider: SimulatedProvider
) -> None:
    frozen = started(tmp_path, ledger, callers=4, seconds=30, lease_s=4)
    other = started(tmp_path, ledger, callers=1, seconds=7, lease_s=4)
    go(frozen, other)
    frozen.send_signal(signal.SIGSTOP)
    time.sleep(5.5)
    frozen.send_signal(signal.SIGCONT)
    error = frozen.hear()["error"]
    assert "LeaseLostError" in error, error[-2_000:]
    assert frozen.ended() != 0
    assert figures(other)["answered"] > 0


def test_what_a_killed_process_held_is_there_again_within_its_lease(
    tmp_path: Path, ledger: str, provider: SimulatedProvider
) -> None:
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(catalog.read_text().replace("burst_s: 2}", "burst_s: 2, max_concurrent: 2}"))
    provider.always(Step.slow(2.0))
    killed = started(tmp_path, ledger, callers=2, seconds=30, lease_s=4)
    go(killed)
    deadline = time.monotonic() + 60
    while provider.count < 3:  # the first call to see that it works, then both slots are its
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.ended() == -signal.SIGKILL
    other = started(tmp_path, ledger, callers=1, seconds=0.1, lease_s=4)
    go(other)
    assert figures(other)["answered"] == 1
