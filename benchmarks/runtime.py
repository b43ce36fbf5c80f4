"""What a job costs: CPU a call beyond the bare SDK call, and memory a waiting job.

`python -m benchmarks.runtime` prints a table. The calls go to one loopback provider in a process of its own; the
figures are CPU time of this process (`process_time`, so the store's thread counts), medians of alternating rounds, with
the records committed to SQLite on disk. One at a time every record is a commit of its own; 32 at once share theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Awaitable, Callable
from decimal import Decimal
from statistics import median
from time import perf_counter, process_time

import anthropic

from interlock.catalog import Catalog, Grade, Limits, ModelEntry, Prices, ProviderSettings
from interlock.credentials import Chain, EnvironmentStore
from interlock.runtime import LLMCall, Runtime, RuntimeSettings

ROUNDS = 7
PROMPT = "Summarise: the quick brown fox jumps over the lazy dog. It was a fine day, and nobody minded. " * 3

SERVER = """
import sys
from interlock.clients.simulator import SimulatedProvider
with SimulatedProvider(keep_requests=10).in_thread() as provider:
    print(provider.anthropic_url, flush=True)
    sys.stdin.read()
"""

Ask = Callable[[], Awaitable[object]]


UNLIMITED = Limits(rpm=6_000_000, tpm=6_000_000_000)


def settings(url: str, store: str | None, limits: Limits = UNLIMITED) -> RuntimeSettings:
    entry = ModelEntry(
        id="bench",
        grade=Grade.SMALL,
        provider="anthropic-direct",
        wire_model_id="bench",
        context_window=100_000,
        max_output_tokens=4_000,
        limits=limits,
        prices=Prices(input=Decimal(3), output=Decimal(15)),
    )
    providers = {"anthropic-direct": ProviderSettings(credential="bench-key", base_url=url)}
    return RuntimeSettings(
        catalog=Catalog.of([entry], providers=providers),
        store=store,
        credentials=Chain(EnvironmentStore({"BENCH_KEY": "sk-bench-0123456789"})),
    )


async def cpu_ms(ask: Ask, calls: int, at_once: int) -> float:
    gc.collect()
    began = process_time()
    for _ in range(calls // at_once):
        await asyncio.gather(*[ask() for _ in range(at_once)])
    return (process_time() - began) / (calls // at_once * at_once) * 1_000


async def compare(title: str, bare: Ask, ours: Ask, calls: int, at_once: int) -> None:
    for ask in (bare, ours):
        await cpu_ms(ask, 2 * at_once + 10, at_once)
    rounds = [(await cpu_ms(bare, calls, at_once), await cpu_ms(ours, calls, at_once)) for _ in range(ROUNDS)]
    bare_ms, ours_ms = median(pair[0] for pair in rounds), median(pair[1] for pair in rounds)
    extra_ms = median(ours - bare for bare, ours in rounds)
    print(f"{title:<44}{bare_ms:>10.2f}{ours_ms:>10.2f}{extra_ms:>+10.2f}")


async def measure_calls(url: str, calls: int) -> None:
    print(f"{'CPU a call, ms':<44}{'SDK':>10}{'runtime':>10}{'extra':>10}   (target: at most +1.00)")
    async with anthropic.AsyncAnthropic(api_key="bench", base_url=url, max_retries=0) as sdk:

        async def bare() -> object:
            return await sdk.messages.create(
                model="bench", max_tokens=300, messages=[{"role": "user", "content": PROMPT}]
            )

        with tempfile.TemporaryDirectory() as folder:
            for name, store in (("SQLite on disk", f"sqlite:///{folder}/bench.db"), ("no store", None)):
                async with Runtime(settings(url, store)) as runtime:

                    async def ours(runtime: Runtime = runtime) -> object:
                        return await runtime.run(LLMCall(PROMPT, max_output_tokens=300))

                    for at_once in (32, 1):
                        await compare(f"{name}, {at_once} at once", bare, ours, calls, at_once)


async def measure_waiting(url: str, jobs: int) -> None:
    limits = Limits(rpm=1, tpm=1_000)
    async with Runtime(settings(url, None, limits)) as runtime:
        call = LLMCall("Say hello.", max_output_tokens=900)
        warm = [runtime.submit(call) for _ in range(100)]
        tasks = len(asyncio.all_tasks())
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        began = perf_counter()
        handles = [runtime.submit(call) for _ in range(jobs)]
        each_us = (perf_counter() - began) / jobs * 1e6
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        more_tasks = len(asyncio.all_tasks()) - tasks
        print(f"\n{jobs:,} jobs waiting: {(after - before) / jobs:,.0f} bytes each (target: at most 1,024), ", end="")
        print(f"{more_tasks} Tasks of their own, {each_us:.0f} µs to submit one while memory is traced")
        print(f"largest resident set: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")
        for handle in [*handles, *warm]:
            handle.cancel()


async def measure(url: str, calls: int, waiting: int) -> None:
    await measure_calls(url, calls)
    await measure_waiting(url, waiting)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=192, help="calls a round")
    parser.add_argument("--waiting", type=int, default=20_000, help="jobs that wait")
    given = parser.parse_args()
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        asyncio.run(measure(server.stdout.readline().strip(), given.calls, given.waiting))
    finally:
        server.communicate("")


if __name__ == "__main__":
    main()
