"""One simulated run: the real Runtime, its callers, a provider and what befalls them, all of it drawn from one seed.

`simulate(seed)` runs it on virtual time, checks what must hold in the middle and at the end, and gives the trace:
everything that happened, in order. The same seed gives the same trace, in any process.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from interlock.admission import CountingGate
from interlock.admission.virtual import LoopClock, VirtualLoop
from interlock.catalog import Catalog, Grade, Kind, Limits, ModelEntry, Prices
from interlock.credentials import Chain, EnvironmentStore
from interlock.decisions.questions import Noul
from interlock.errors import InterlockError
from interlock.runtime import (
    DatabaseProvider,
    DecisionCall,
    Job,
    JobHandle,
    LLMCall,
    Runtime,
    RuntimeSettings,
)

from .checks import check_at_rest, check_under_way
from .clients import registered
from .database import FakeEngine
from .jobs import Save, Several, Shape, TooLarge, Write, inner, outer
from .upstream import CURRENT, Manners, Upstream

PRICES = Prices(input=Decimal(1), output=Decimal(10))
CREDENTIALS = Chain(EnvironmentStore({}))
START = datetime(2026, 11, 1, tzinfo=UTC)

#: Limits of the chat pools, by their shape.
SHAPES: tuple[dict[str, float], ...] = (
    {"rpm": 100, "tpm": 15_000},
    {"tpm": 12_000, "max_concurrent": 4},
    {"rpm": 60, "input_tpm": 8_000, "output_tpm": 10_000},
    {"rpm": 40, "max_concurrent": 2},
)


class TurningLoop(VirtualLoop):
    """A virtual loop that counts its turns, and can be told to do something at one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self.at_turn: dict[int, Callable[[], None]] = {}

    def _run_once(self) -> None:
        self.turns += 1
        act = self.at_turn.pop(self.turns, None)
        if act is not None:
            self.call_soon(act)
        super()._run_once()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a seed stands for. A *faithful* run has a provider that serves what it publishes and callers that declare
    what they send: nobody is ever refused in it."""

    seed: int
    faithful: bool
    manners: Manners
    limits: Limits
    shared_pool: bool
    callers: int
    cancels: int
    edits: int
    close_after_s: float | None
    cost_cap: str

    @classmethod
    def of(cls, seed: int) -> Plan:
        rng = random.Random(f"plan {seed}")
        kind = rng.choice(("faithful", "faithful", "faulty", "faulty", "short", "storm"))
        shape, burst_s = rng.choice(SHAPES), rng.choice((10.0, 20.0, 60.0))
        if kind == "faithful":
            manners = Manners(headers=rng.random() < 0.5)
        elif kind == "faulty":
            manners = Manners(faults=0.2, tokenizer=rng.choice((0.6, 1.0, 1.5)), headers=rng.random() < 0.5)
        elif kind == "short":
            manners = Manners(faults=0.02, serves=rng.choice((0.3, 0.6)), hints=rng.random() < 0.5)
        else:
            manners = Manners(faults=0.02, storm_s=(5.0, 40.0))
        return cls(
            seed=seed,
            faithful=kind == "faithful",
            manners=manners,
            limits=Limits(**shape, burst_s=burst_s),  # type: ignore[arg-type]
            shared_pool=rng.random() < 0.5,
            callers=rng.randint(4, 10),
            cancels=rng.choice((0, 0, 1, 3)),
            edits=rng.choice((0, 0, 1, 3)),
            close_after_s=rng.choice((None, None, None, rng.uniform(0.0, 60.0))),
            cost_cap=rng.choice(("100", "100", "100", "0.05")),
        )

    def entries(self, part: float = 1.0) -> tuple[list[ModelEntry], dict[str, Limits]]:
        """The catalog's entries and pools, with limits at that part of what is published."""
        chat = _scaled(self.limits, part)
        small = Limits(pool="shared") if self.shared_pool else chat
        pools = {"shared": chat} if self.shared_pool else {}
        common: dict[str, Any] = {"context_window": 100_000, "prices": PRICES}
        written: dict[str, Any] = {**common, "provider": "sim-chat", "max_output_tokens": 900}
        return [
            ModelEntry(id="small", grade=Grade.SMALL, wire_model_id="small", limits=small, **written),
            ModelEntry(id="medium", grade=Grade.MEDIUM, wire_model_id="medium", limits=small, **written),
            ModelEntry(
                id="vectors", kind=Kind.EMBEDDINGS, provider="sim-vectors", wire_model_id="vectors", dimensions=4,
                max_batch_items=2, limits=Limits(rpm=300, tpm=6_000, burst_s=20), **common,
            ),
            ModelEntry(
                id="verdicts", kind=Kind.DECISION, provider="sim-verdicts", wire_model_id="verdicts",
                limits=Limits(max_concurrent=2), **common,
            ),
        ], pools  # fmt: skip

    def catalog(self, part: float = 1.0) -> Catalog:
        entries, pools = self.entries(part)
        return Catalog.of(entries, pools=pools, embedding_width=4)


def _scaled(limits: Limits, part: float) -> Limits:
    rates = {name: getattr(limits, name) for name in ("rpm", "tpm", "input_tpm", "output_tpm")}
    return limits.model_copy(update={name: rate * part for name, rate in rates.items() if rate is not None})


class Closed(Exception):
    """The caller leaves the runtime's block in the middle."""


class Simulation:
    """See the top of the file."""

    def __init__(self, plan: Plan, loop: TurningLoop) -> None:
        self.plan, self.loop, self.trace = plan, loop, list[Any]()
        self.clock = LoopClock(loop)
        self.rng = random.Random(f"run {plan.seed}")
        self.upstream = Upstream(self.clock, random.Random(f"provider {plan.seed}"), plan.manners, self.trace)
        chat = ("small", "medium")
        if plan.shared_pool:
            self.upstream.publish("shared", chat, plan.limits)
        else:
            for model in chat:
                self.upstream.publish(model, (model,), plan.limits)
        self.upstream.publish("vectors", ("vectors",), Limits(rpm=300, tpm=6_000, burst_s=20))
        self.upstream.publish("verdicts", ("verdicts",), Limits(max_concurrent=2))
        self.engine = FakeEngine(self.clock)
        chance = random.Random(f"database {plan.seed}")
        self.engine.fail = lambda: chance.random() < 0.03
        self.handles: list[JobHandle[Any]] = []
        self.endings: Counter[int] = Counter()
        self.row_of: list[JobHandle[Any]] = []  # plain calls of one kind, in the order in which they were submitted
        self.runtime: Runtime | None = None

    async def run(self) -> None:
        CURRENT.append(self.upstream)
        plan = self.plan
        settings = RuntimeSettings(
            catalog=plan.catalog(),
            store=None,
            databases=(DatabaseProvider("db", self.engine, max_concurrent=2),),  # type: ignore[arg-type]
            accounts=(CountingGate("gpu", 2),),
            cost_cap=plan.cost_cap,
            clock=self.clock,
            wall=lambda: START + timedelta(seconds=self.clock.now()),
            seed=plan.seed,
            credentials=CREDENTIALS,
        )
        self.runtime = Runtime(settings)
        try:
            async with self.runtime as runtime:
                dispatcher = runtime._dispatcher
                assert dispatcher is not None
                await self._live(runtime)
        except Closed:
            self.trace.append(("closed", self.clock.now()))
        rows = await dispatcher.book.read_calls(limit=100_000)
        await check_at_rest(self, dispatcher, rows)
        for row in rows:
            self.trace.append(("row", row.job, row.step_id, row.attempt, row.record.outcome, row.record.started_at))
            self.trace.append(("waited", row.waited_s, *row.waited.items()))

    async def _live(self, runtime: Runtime) -> None:
        callers = [asyncio.create_task(self._call(runtime, number)) for number in range(self.plan.callers)]
        inspector = asyncio.create_task(self._inspect(runtime))
        self._disturb(runtime)
        try:
            async with asyncio.timeout(self.plan.close_after_s):
                await asyncio.gather(*callers)
        except TimeoutError:
            raise Closed from None
        finally:
            for task in (*callers, inspector):
                task.cancel()
            await asyncio.gather(*callers, inspector, return_exceptions=True)
            if inspector.done() and not inspector.cancelled() and inspector.exception() is not None:
                raise inspector.exception()  # type: ignore[misc]

    async def _inspect(self, runtime: Runtime) -> None:
        while True:
            await self.clock.sleep(3.7)
            check_under_way(self, runtime)

    # The callers.

    async def _call(self, runtime: Runtime, number: int) -> None:
        rng = random.Random(f"caller {number} of {self.plan.seed}")
        await self.clock.sleep(rng.choice((0.0, 0.0, rng.uniform(0, 20))))
        mine: list[JobHandle[Any]] = []
        for job in self._jobs(rng, f"c{number}"):
            after = [rng.choice(self.handles)] if self.handles and rng.random() < 0.15 else []
            capped = rng.choice((None, None, None, None, "0.02", "1"))
            handle = runtime.submit(
                job, after=after, tolerate_failures=rng.random() < 0.5, cost_cap=capped, priority=number % 2
            )
            mine.append(handle)
            self._follow(handle)
        if number == 0:
            self._queue_in_order(runtime)
        for handle in mine:
            try:
                await handle
            except (InterlockError, OSError, KeyError) as error:
                self.trace.append(("told", self.clock.now(), type(error).__name__))

    def _follow(self, handle: JobHandle[Any]) -> None:
        index = len(self.handles)
        self.handles.append(handle)

        def ended() -> None:
            self.endings[index] += 1
            self.trace.append(("over", self.clock.now(), index, str(handle.state)))

        handle._execution.on_done(ended)

    def _queue_in_order(self, runtime: Runtime) -> None:
        """Some calls that differ in nothing but their turn."""
        for number in range(5):
            handle = runtime.submit(LLMCall(f"turn {number}", model="small", max_output_tokens=100), workflow="in turn")
            self.row_of.append(handle)
            self._follow(handle)

    def _jobs(self, rng: random.Random, name: str) -> list[Job[Any]]:
        honest = self.plan.faithful
        kinds: list[Callable[[], Job[Any]]] = [
            lambda: outer(name),
            lambda: outer(name),
            lambda: inner(name),
            lambda: Save(name),
            lambda: Write(name),
            lambda: TooLarge(),
            lambda: Several(name, 2, 2 if honest else rng.randint(1, 3), rng.choice((0.0, 3.0)), rng.random() < 0.3),
            lambda: LLMCall(name, max_wait_s=rng.choice((0.0, 2.0, 30.0)), overflow="fail" if honest else "proceed"),
            lambda: LLMCall(name * 200, response_model=Shape, workflow=rng.choice("ab"), timeout_s=20.0),
            lambda: DecisionCall(name, {"urgent": Noul.of("Is it urgent?")}),
        ]
        return [rng.choice(kinds)() for _ in range(rng.randint(1, 3))]

    # What befalls them.

    def _disturb(self, runtime: Runtime) -> None:
        rng, now = self.rng, self.clock.now()
        for _ in range(self.plan.cancels):
            if rng.random() < 0.5:
                self.clock.call_at(now + rng.choice((1.0, 5.2, rng.uniform(0, 60))), self._cancel_one)
            else:
                self.loop.at_turn[self.loop.turns + rng.randint(1, 600)] = self._cancel_one
        for _ in range(self.plan.edits):
            self.clock.call_at(now + rng.uniform(0, 40), self._edit)

    def _cancel_one(self) -> None:
        living = [handle for handle in self.handles if not handle.done]
        if living:
            victim = self.rng.choice(living)
            self.trace.append(("cancel", self.clock.now(), self.handles.index(victim), victim.cancel()))

    def _edit(self) -> None:
        """The catalog is edited: its limits become a part of what the provider publishes, or the whole again."""
        assert self.runtime is not None
        dispatcher = self.runtime._dispatcher
        if dispatcher is None:
            return
        part = self.rng.choice((0.5, 0.8, 1.0))
        self.trace.append(("edit", self.clock.now(), part))
        desk = dispatcher.desk
        desk.catalog = self.plan.catalog(part)
        for entry in desk.catalog.entries.values():
            desk.pool(entry)


def simulate(seed: int) -> list[Any]:
    """Run the seed's plan and give its trace. AssertionError where something does not hold."""
    plan = Plan.of(seed)
    with registered(), asyncio.Runner(loop_factory=TurningLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, TurningLoop)
        simulation = Simulation(plan, loop)
        runner.run(simulation.run())
    simulation.trace.append(("turns", loop.turns, loop.time()))
    return simulation.trace
