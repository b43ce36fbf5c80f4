"""Admission through its shell, under any order of submit, grant, send, close, release, cancel, timeout and refusal."""

from __future__ import annotations

import asyncio
from math import inf

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from interlock.admission import (
    Admission,
    CallCharge,
    CallOutcome,
    CountingGate,
    DatabaseGate,
    Demand,
    ManualClock,
    OutcomeKind,
    Permit,
    Reservation,
    Waiting,
)
from interlock.catalog.entry import Accounting, Limits
from interlock.catalog.usage import Usage
from interlock.errors import AdmissionError

ANSWERS = st.sampled_from([kind for kind in OutcomeKind if kind is not OutcomeKind.UNSENT])

#: What the first pool's limits may become: other numbers, other dimensions, none.
EDITS = [
    {"tpm": 450, "rpm": 60},
    {"tpm": 1200, "rpm": 60},
    {"rpm": 60},
    {"rpm": 60, "max_concurrent": 1},
    {"input_tpm": 600, "output_tpm": 600, "max_concurrent": 3},
    {},
]


class Asked:
    """One demand and everything it was answered."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.waiting: Waiting | None = None
        self.granted: list[Reservation] = []
        self.refused: list[AdmissionError] = []
        self.permits: list[Permit] = []
        self.cancelled = False

    @property
    def answers(self) -> int:
        return len(self.granted) + len(self.refused)

    @property
    def running(self) -> bool:
        return bool(self.granted) and not self.granted[0].released


class AdmissionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.admission = Admission(self.clock, jitter=lambda: 0.0)
        self.pools = [
            self.admission.pool("p", Limits(tpm=600, rpm=60)),
            self.admission.pool("q", Limits(input_tpm=600, output_tpm=300, max_concurrent=2)),
            self.admission.pool("open", Limits()),
        ]
        self.gates = [self.admission.account(DatabaseGate("d", 2)), self.admission.account(CountingGate("g", 3))]
        self.asked: list[Asked] = []

    def do(self, act) -> None:
        async def inside() -> None:
            act()
            await self.clock.settle(3)

        self.loop.run_until_complete(inside())

    @rule(
        pools=st.lists(st.integers(0, 2), max_size=2),
        size=st.sampled_from([1, 50, 150]),
        held=st.lists(st.integers(0, 1), max_size=2, unique=True),
        workflow=st.sampled_from("ab"),
        priority=st.sampled_from([0, 0, 1]),
        max_wait_s=st.sampled_from([None, None, 0.0, 20.0]),
        overflow=st.sampled_from(["fail", "fail", "proceed"]),
        count=st.sampled_from([1, 1, 2]),
        back=st.booleans(),
    )
    def submit(self, pools, size, held, workflow, priority, max_wait_s, overflow, count, back) -> None:
        calls = tuple(
            CallCharge(
                key=i,
                pool=self.pools[which],
                accounting=Accounting(),
                input_tokens=size,
                output_tokens=size // 2,
                count=count,
            )
            for i, which in enumerate(pools)
        )
        demand = Demand(
            calls=calls,
            held=tuple((self.gates[i], 1) for i in held),
            workflow=workflow,
            priority=priority,
            max_wait_s=max_wait_s,
            overflow=overflow,
        )
        asked = Asked(demand)
        over = [a for a in self.asked if a.granted and a.granted[0].released]
        ticket = over[-1].granted[0].ticket if back and over else None

        def act() -> None:
            try:
                asked.waiting = self.admission.submit(demand, asked.granted.append, asked.refused.append, ticket=ticket)
            except AdmissionError as error:
                asked.refused.append(error)
            assert asked.answers == len(asked.refused), "answered from inside submit"

        self.asked.append(asked)
        self.do(act)

    @rule(which=st.integers(0, 2), size=st.sampled_from([1, 150]), held=st.booleans())
    def leave_before_hearing(self, which, size, held) -> None:
        call = CallCharge(
            key=0, pool=self.pools[which], accounting=Accounting(), input_tokens=size, output_tokens=size // 2
        )
        asked = Asked(Demand(calls=(call,), held=((self.gates[0], 1),) if held else ()))

        def act() -> None:
            waiting = self.admission.submit(asked.demand, asked.granted.append, asked.refused.append)
            asked.cancelled = waiting.cancel()
            assert asked.cancelled

        self.asked.append(asked)
        self.do(act)

    @precondition(lambda self: any(a.running and a.demand.calls for a in self.asked))
    @rule(data=st.data(), kind=ANSWERS, part=st.floats(0, 1.5), hint=st.sampled_from([None, 1.0, 30.0, 90.0]))
    def send(self, data, kind, part, hint) -> None:
        asked = data.draw(st.sampled_from([a for a in self.asked if a.running and a.demand.calls]))
        call = data.draw(st.sampled_from(asked.demand.calls))

        def act() -> None:
            permit = asked.granted[0].permit(call.key, input_tokens=call.input_tokens, output_tokens=call.output_tokens)
            asked.permits.append(permit)
            permit.sent()
            usage = Usage(input_tokens=int(call.input_tokens * part), output_tokens=int(call.output_tokens * part))
            permit.close(CallOutcome(kind=kind, usage=usage, retry_after_s=hint))

        self.do(act)

    @precondition(lambda self: any(a.running for a in self.asked))
    @rule(data=st.data())
    def release(self, data) -> None:
        asked = data.draw(st.sampled_from([a for a in self.asked if a.running]))
        self.do(asked.granted[0].release)

    @precondition(lambda self: any(a.waiting is not None for a in self.asked))
    @rule(data=st.data())
    def cancel(self, data) -> None:
        asked = data.draw(st.sampled_from([a for a in self.asked if a.waiting is not None]))

        def act() -> None:
            assert asked.waiting is not None
            before = asked.answers
            if asked.waiting.cancel():
                assert before == 0
                asked.cancelled = True

        self.do(act)

    @rule(seconds=st.sampled_from([0.01, 1.0, 7.0, 45.0]))
    def advance(self, seconds) -> None:
        self.loop.run_until_complete(self.clock.advance(seconds))

    @rule(limits=st.sampled_from(EDITS))
    def edit_the_catalog(self, limits) -> None:
        self.do(lambda: self.admission.pool("p", Limits(**limits)))

    @invariant()
    def everybody_is_answered_once_and_at_most(self) -> None:
        for asked in self.asked:
            assert asked.answers + asked.cancelled <= 1
            if asked.waiting is not None and asked.answers + asked.cancelled == 0:
                assert asked.waiting.status == "waiting"

    @invariant()
    def every_second_waited_is_told_to_an_account(self) -> None:
        for asked in self.asked:
            for reservation in asked.granted:
                assert abs(sum(reservation.waited_by_account.values()) - reservation.waited_s) < 1e-6

    @invariant()
    def what_is_held_is_what_the_running_hold(self) -> None:
        for gate in self.gates:
            out = sum(1 for a in self.asked if a.running for g, n in a.demand.held if g is gate)
            assert gate.used == out <= gate.capacity
        slots = self.pools[1].gate
        assert slots is not None
        assert 0 <= slots.used <= slots.capacity

    @invariant()
    def everybody_who_waits_is_told_why(self) -> None:
        still = [a.waiting for a in self.asked if a.waiting is not None and a.waiting.status == "waiting"]
        for waiting in still:
            explanation = self.admission.explain(waiting)
            assert explanation.account is not None
            assert explanation.reason
            assert explanation.lacks > 0 or explanation.ahead > 0 or "429" in explanation.reason
            assert explanation.earliest_s is None or 0 <= explanation.earliest_s < inf
        assert self.admission.statistics().waiting == len(still)

    @invariant()
    def the_books_agree(self) -> None:
        statistics = self.admission.statistics()
        assert statistics.granted == sum(len(a.granted) for a in self.asked)
        assert statistics.refused == sum(len(a.refused) for a in self.asked)
        assert statistics.cancelled == sum(a.cancelled for a in self.asked)
        for account in statistics.accounts:
            assert account.level <= account.capacity + 1e-6
            assert account.debt == max(-account.level, 0.0)

    def teardown(self) -> None:
        """Everything ends: whoever waits is granted or refused in the end, and nothing stays out."""
        try:
            self.finish()
        finally:
            self.loop.close()

    def finish(self) -> None:

        def release_all() -> None:
            for asked in self.asked:
                for reservation in asked.granted:
                    reservation.release()

        for _ in range(4 * len(self.asked) + 4):
            self.do(release_all)
            if all(a.answers + a.cancelled for a in self.asked):
                break
            self.loop.run_until_complete(self.clock.advance(300.0))
        self.do(release_all)
        assert all(a.answers + a.cancelled == 1 for a in self.asked), "somebody waits for ever"
        assert all(gate.used == 0 for gate in [*self.gates, self.pools[1].gate] if gate is not None)


TestAdmissionMachine = AdmissionMachine.TestCase
TestAdmissionMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
