"""A provider in this process, driven by the manual clock, and a runtime around it."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.admission import ManualClock
from interlock.catalog import Accounting, Catalog, Grade, Limits, ModelEntry, Prices
from interlock.clients import registry
from interlock.clients.abstract import AbstractLLMClient, Reply, WireStream
from interlock.clients.conversation import TextBlock, ToolResultBlock, ToolUseBlock
from interlock.clients.response import StopReason
from interlock.runtime import Runtime, RuntimeSettings


@dataclass
class Step:
    """What the fake provider does with one request. Seconds are the manual clock's."""

    text: str = "ok"
    latency_s: float = 1.0
    error: Exception | Callable[[], Exception] | None = None
    stop: StopReason = StopReason.END_TURN
    usage: tuple[int, int] | None = (10, 5)
    pieces: Sequence[str] | None = None  # of a stream; None: the text whole
    break_after: int | None = None  # pieces after which `error` strikes


@dataclass
class Seen:
    at_s: float
    body: dict[str, Any]
    streamed: bool
    ended: str = "open"


@dataclass
class FakeProvider:
    clock: Any
    steps: deque[Step] = field(default_factory=deque)
    always: Callable[[Seen], Step] = field(default=lambda seen: Step())
    seen: list[Seen] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    closed: int = 0

    def script(self, *steps: Step) -> None:
        self.steps.extend(steps)

    @property
    def count(self) -> int:
        return len(self.seen)

    def arrive(self, body: bytes, *, streamed: bool) -> tuple[Seen, Step]:
        seen = Seen(self.clock.now(), json.loads(body), streamed)
        self.seen.append(seen)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return seen, self.steps.popleft() if self.steps else self.always(seen)

    def left(self, seen: Seen, how: str) -> None:
        if seen.ended == "open":
            seen.ended = how
            self.in_flight -= 1


def _raise(step: Step) -> None:
    if step.error is not None:
        raise step.error() if callable(step.error) else step.error


class FakeClient(AbstractLLMClient):
    """Speaks to the FakeProvider of the running test."""

    provider: FakeProvider
    encoders = {  # noqa: RUF012
        TextBlock: lambda block: block.text,
        ToolUseBlock: lambda block: {"use": block.id},
        ToolResultBlock: lambda block: {"result": block.tool_use_id},
    }
    takes = frozenset({"temperature", "stop", "tools", "tool_choice"})

    def encode(self, ask: Any) -> dict[str, Any]:
        turns = [
            [message.role, [self.encoders[type(block)](block) for block in message.blocks]]
            for message in ask.conversation.messages
        ]
        return {
            "model": self.entry.wire_model_id,
            "system": ask.system,
            "turns": turns,
            "max_tokens": ask.max_output_tokens,
        }

    async def send(self, body: bytes) -> Reply:
        seen, step = self.provider.arrive(body, streamed=False)
        try:
            await self.provider.clock.sleep(step.latency_s)
            _raise(step)
        except BaseException as error:
            self.provider.left(seen, type(error).__name__)
            raise
        self.provider.left(seen, "answered")
        return Reply(payload=step, request_id=f"req-{self.provider.count}")

    async def open(self, body: bytes, alive: Callable[[], None]) -> WireStream:
        seen, step = self.provider.arrive(body, streamed=True)
        if step.break_after is None:
            try:
                _raise(step)
            except BaseException:
                self.provider.left(seen, "refused")
                raise
        pieces = list(step.pieces if step.pieces is not None else [step.text])

        async def close() -> None:
            self.provider.left(seen, "closed")

        return WireStream(
            events=_Events(self.provider, step, pieces), aclose=close, request_id=f"req-{self.provider.count}"
        )

    def read_reply(self, payload: Step, draft: Any) -> None:
        draft.text(0, payload.text)
        draft.stop(payload.stop)
        if payload.stop is StopReason.REFUSAL:
            draft.refuse("policy", "no")
        if payload.usage is not None:
            draft.count(input_tokens=payload.usage[0], output_tokens=payload.usage[1])
        draft.served_model = "fake-served"

    def read_event(self, event: Any, draft: Any) -> Any:
        kind, value = event
        if kind == "start":
            draft.count(input_tokens=value, output_tokens=1)
            return []
        if kind == "text":
            piece = draft.text(0, value)
            return [piece] if piece else []
        step: Step = value
        draft.stop(step.stop)
        if step.usage is not None:
            draft.count(input_tokens=step.usage[0], output_tokens=step.usage[1])
        draft.complete = True
        return []

    def read_error(self, error: Exception) -> Any:
        return None

    async def aclose(self) -> None:
        self.provider.closed += 1


class _Events:
    def __init__(self, provider: FakeProvider, step: Step, pieces: list[str]) -> None:
        self._provider, self._step = provider, step
        events: list[Any] = [("start", 25)]
        events += [("text", piece) for piece in pieces]
        if step.break_after is None:
            events.append(("end", step))
        else:
            events = events[: 1 + step.break_after]
        self._events = deque(events)

    async def __anext__(self) -> Any:
        await self._provider.clock.sleep(self._step.latency_s)
        if self._events:
            return self._events.popleft()
        if self._step.break_after is not None:
            _raise(self._step)
        raise StopAsyncIteration


def entry(id: str = "fake-small", **changes: Any) -> ModelEntry:
    values: dict[str, Any] = {
        "id": id,
        "grade": Grade.SMALL,
        "provider": "fake",
        "wire_model_id": f"wire-{id}",
        "context_window": 100_000,
        "max_output_tokens": 8_000,
        "limits": Limits(rpm=6_000, tpm=6_000_000),
        "accounting": Accounting(),
        "prices": Prices(input=Decimal(1), output=Decimal(10), per=1_000_000),
    }
    return ModelEntry(**{**values, **changes})


@dataclass
class World:
    """A clock, a provider, and runtimes around them."""

    clock: ManualClock
    provider: FakeProvider
    entries: list[ModelEntry]

    step = Step
    patience: int = 25  # looks at the threads, 2 ms apart, before a leap

    def settings(self, **changes: Any) -> RuntimeSettings:
        clock, start = self.clock, datetime(2026, 11, 1, tzinfo=UTC)
        values: dict[str, Any] = {
            "catalog": Catalog.of(self.entries),
            "store": None,
            "clock": clock,
            "wall": lambda: start + timedelta(seconds=clock.now()),
            "seed": 7,
        }
        return RuntimeSettings(**{**values, **changes})

    def runtime(self, **changes: Any) -> Runtime:
        return Runtime(self.settings(**changes))

    async def until(self, awaitable: Any, *, within_s: float = 10_000.0) -> Any:
        """Await something while the clock runs from timer to timer. Raises TimeoutError on the manual clock."""
        task = asyncio.ensure_future(awaitable)
        await self.run_until(task.done, within_s=within_s)
        return await task

    async def run_until(self, condition: Callable[[], bool], *, within_s: float = 10_000.0) -> None:
        end_s = self.clock.now() + within_s
        idle = 0
        while not condition():
            await self.clock.settle(5)
            if condition():
                return
            due = self.clock.next_instant
            if due is None or due > end_s:
                idle += 1
                await asyncio.sleep(0.001)  # a thread or the store may be about to answer
                if idle > 2_000:
                    raise TimeoutError(f"nothing happens any more; next timer {due}, now {self.clock.now()}")
                continue
            idle = 0
            if due - self.clock.now() > 5.0 and await self._threads_answer(condition):
                continue
            await self.clock.advance(due - self.clock.now())

    async def _threads_answer(self, condition: Callable[[], bool]) -> bool:
        """A long leap is taken only when no thread (a database's) has anything to say for a few milliseconds."""
        before = self.clock.next_instant
        for _ in range(self.patience):
            await asyncio.sleep(0.002)
            await self.clock.settle(5)
            if condition() or self.clock.next_instant != before:
                return True
        return False


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    clock = ManualClock()
    provider = FakeProvider(clock)
    monkeypatch.setattr(FakeClient, "provider", provider, raising=False)
    monkeypatch.setitem(registry._known(), "fake", SimpleNamespace(load=lambda: FakeClient))
    registry.provider_class.cache_clear()
    yield World(clock, provider, [entry()])
    registry.provider_class.cache_clear()


@pytest.fixture
async def runtime(world: World) -> AsyncIterator[Runtime]:
    async with world.runtime() as opened:
        yield opened
        await world.until(opened._dispatcher.cancel_all())  # type: ignore[union-attr]


@pytest.fixture(name="entry")
def entry_fixture() -> Callable[..., ModelEntry]:
    return entry


@pytest.fixture(name="Step")
def step_fixture() -> type[Step]:
    return Step
