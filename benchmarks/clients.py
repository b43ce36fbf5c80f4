"""What the client template costs beyond the bare SDK call.

`python -m benchmarks.clients` prints a table. Both ways call the same loopback provider, which runs in a process of its
own; the figures are CPU time of this process (`process_time`) a call, medians of alternating rounds. What counts is the
difference in milliseconds and the ratio. `--calls N` sets the calls a round.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from decimal import Decimal
from statistics import median
from time import process_time

import anthropic
import openai

from interlock.admission.outcome import CallOutcome
from interlock.catalog.entry import ModelEntry, Prices, ProviderSettings
from interlock.catalog.spec import ModelBinding, ModelSpec
from interlock.catalog.tokens import TokenEstimator
from interlock.catalog.words import Grade
from interlock.clients.abstract import AbstractLLMClient
from interlock.clients.client import LLMClient
from interlock.clients.environment import ClientEnvironment
from interlock.clients.record import CallRecord
from interlock.clients.registry import provider_class
from interlock.credentials import Chain, EnvironmentStore, Redactor

ROUNDS = 9
PROMPT = "Summarise: the quick brown fox jumps over the lazy dog. It was a fine day, and nobody minded. " * 3

SERVER = """
import sys
from interlock.clients.simulator import SimulatedProvider
with SimulatedProvider(keep_requests=10).in_thread() as provider:
    print(provider.base_url, flush=True)
    sys.stdin.read()
"""

Ask = Callable[[], Awaitable[None]]


class Permit:
    unmetered = undeclared = False

    def sent(self) -> None: ...

    def close(self, outcome: CallOutcome) -> None: ...


class Seat:
    """A reservation and a book that cost nothing, so that only the template is measured."""

    def __init__(self, binding: ModelBinding) -> None:
        self.binding = binding

    def permit(self, *, input_tokens: int, output_tokens: int) -> Permit:
        return Permit()

    def record(self, record: CallRecord) -> Awaitable[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


def made(key: str, url: str) -> tuple[AbstractLLMClient, LLMClient]:
    entry = ModelEntry(
        id="bench",
        grade=Grade.SMALL,
        provider=key,
        wire_model_id="bench",
        context_window=100_000,
        max_output_tokens=4_000,
        base_url=url,
        prices=Prices(input=Decimal(3), output=Decimal(15)),
    )
    redactor = Redactor()
    environment = ClientEnvironment(
        settings=ProviderSettings(credential="bench-key"),
        credentials=Chain(EnvironmentStore({"BENCH_KEY": "sk-bench-0123456789"}), redactor=redactor),
        redactor=redactor,
        estimator=TokenEstimator(),
    )
    template: AbstractLLMClient = provider_class(key)(entry, environment)
    binding = ModelBinding(spec=ModelSpec("bench"), entry=entry, input_tokens=200, output_tokens=300)
    return template, template.bound(binding, Seat(binding))


def anthropic_ways(sdk: anthropic.AsyncAnthropic) -> tuple[Ask, Ask]:
    async def whole() -> None:
        message = await sdk.messages.create(
            model="bench", max_tokens=300, messages=[{"role": "user", "content": PROMPT}]
        )
        assert message.content

    async def streamed() -> None:
        stream = await sdk.messages.create(
            model="bench", max_tokens=300, messages=[{"role": "user", "content": PROMPT}], stream=True
        )
        async for _ in stream:
            pass

    return whole, streamed


def openai_ways(sdk: openai.AsyncOpenAI) -> tuple[Ask, Ask]:
    async def whole() -> None:
        completion = await sdk.chat.completions.create(
            model="bench", max_completion_tokens=300, messages=[{"role": "user", "content": PROMPT}]
        )
        assert completion.choices

    async def streamed() -> None:
        stream = await sdk.chat.completions.create(
            model="bench", max_completion_tokens=300, messages=[{"role": "user", "content": PROMPT}], stream=True,
            stream_options={"include_usage": True},
        )  # fmt: skip
        async for _ in stream:
            pass

    return whole, streamed


def our_ways(client: LLMClient) -> tuple[Ask, Ask]:
    async def whole() -> None:
        assert (await client.single_response(PROMPT)).text

    async def streamed() -> None:
        async with client.stream_response(PROMPT) as pieces:
            async for _ in pieces:
                pass

    return whole, streamed


async def cpu_ms(ask: Ask, calls: int) -> float:
    began = process_time()
    for _ in range(calls):
        await ask()
    return (process_time() - began) / calls * 1_000


async def compare(title: str, bare: Ask, ours: Ask, calls: int) -> None:
    for ask in (bare, ours):
        await cpu_ms(ask, 20)
    figures: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        figures[0].append(await cpu_ms(bare, calls))
        figures[1].append(await cpu_ms(ours, calls))
    without, within = median(figures[0]), median(figures[1])
    print(f"{title:<28} {without:>9.3f} {within:>11.3f} {within - without:>+11.3f} {within / without:>8.2f}")


async def measure(base_url: str, calls: int) -> None:
    print(f"{'CPU ms a call':<28} {'bare SDK':>9} {'template':>11} {'difference':>11} {'ratio':>8}")
    claude = anthropic.AsyncAnthropic(api_key="sk-bench", base_url=base_url, max_retries=0)
    gpt = openai.AsyncOpenAI(api_key="sk-bench", base_url=f"{base_url}/v1", max_retries=0)
    clients = [made("anthropic-direct", base_url), made("openai-chat-completions", f"{base_url}/v1")]
    for name, bare, (_, client) in zip(
        ("anthropic", "openai chat"), (anthropic_ways(claude), openai_ways(gpt)), clients, strict=True
    ):
        for kind, sdk_way, our_way in zip(("whole", "streamed"), bare, our_ways(client), strict=True):
            await compare(f"{name}, {kind}", sdk_way, our_way, calls)
    for template, _ in clients:
        await template.aclose()
    await claude.close()
    await gpt.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100, help="calls a round")
    calls = parser.parse_args().calls
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        asyncio.run(measure(server.stdout.readline().strip(), calls))
    finally:
        server.communicate()


if __name__ == "__main__":
    main()
