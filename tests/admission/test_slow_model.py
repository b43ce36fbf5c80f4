"""Admission against a slow and obvious model of it, written from the rules and not from the code.

The model is tests/simulation/slow_model.py. Nobody is granted what it would not allow at that instant, and nobody is
kept waiting whom it would let go.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from simulation.slow_model import CLOSE, GATES, HOLD_S, LIMITS, Asked, Model, charge_of

from interlock.admission import (
    Admission,
    CallCharge,
    CallOutcome,
    CountingGate,
    Demand,
    Explanation,
    ManualClock,
    OutcomeKind,
    controller,
)
from interlock.admission.line import Line
from interlock.catalog.entry import Accounting, Limits
from interlock.catalog.usage import Usage
from interlock.errors import AdmissionError, AdmissionTimeoutError, NeverFitsError


class SteadyGate(CountingGate):
    """A gate whose typical hold is known, so that the model need not learn it."""

    __slots__ = ()

    def held_for(self, seconds: float) -> None:
        self.settled += 1


class Against(RuleBasedStateMachine):
    """Drives both, and compares at every grant and after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.loop, self.clock = asyncio.new_event_loop(), ManualClock()
        self.model = Model(self.clock.now())
        machine, self.seen = self, False

        class Watched(Line):
            __slots__ = ()

            def take_now(self, waiter: Any, workflow: str, now: float) -> bool:
                machine.seen = False
                taken = super().take_now(waiter, workflow, now)
                if taken and not machine.seen:  # the short way, where nobody waits
                    machine.about_to_go(waiter, now)
                return taken

            def _take(self, waiter: Any, now: float) -> None:
                machine.about_to_go(waiter, now)
                super()._take(waiter, now)

            def _take_offered(self, waiter: Any, now: float) -> bool:
                went = super()._take_offered(waiter, now)
                if went:
                    machine.about_to_go(waiter, now)
                return went

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(controller, "Line", Watched)
            self.admission = Admission(self.clock, jitter=lambda: 0.0, transit_s=0.0)
        self.pools = {name: self.admission.pool(name, Limits(**limits)) for name, limits in LIMITS.items()}
        self.gates = {
            name: self.admission.account(SteadyGate(name, slots, hold_s=HOLD_S)) for name, slots in GATES.items()
        }
        self.submitting: Asked | None = None
        self.predicted: dict[int, tuple[Asked, float, float, Explanation]] = {}

    def do(self, act: Any) -> None:
        self.predicted.clear()

        async def inside() -> None:
            act()
            await self.clock.settle(3)

        self.loop.run_until_complete(inside())

    # The moment of a grant.

    def about_to_go(self, waiter: Any, now: float) -> None:
        model, self.seen = self.model, True
        asked = next((one for one in model.asked if one.waiting is waiter), None)
        if asked is None:
            asked = self.submitting
            assert asked is not None
            asked.waiting = waiter
        rank = -asked.demand.priority
        older = [head for head in model.heads() if head is not asked and head.key < (rank, waiter.ticket)]
        if model.exact:
            short = model.short_of(asked.wants, older, now)
            assert short is None, f"{asked.demand.label} goes, and is short of {short}: {model.told(now)}"
        for other in model.asked:  # nobody passes one like itself
            alike = other.waits and tuple(other.wants) == tuple(asked.wants) and other is not asked
            if (
                alike
                and other.demand.priority == asked.demand.priority
                and other.demand.workflow == asked.demand.workflow
            ):
                assert asked.ticketed or other.ticketed or other.number > asked.number, "passed one of its own"
        for name, n in asked.wants.items():
            if name in model.used:
                model.used[name] += n
                assert model.used[name] <= GATES[name]
            else:
                model.buckets[name].granted(now)
                model.unsent[name] += n
        asked.unsent = [dict(charge) for charge in asked.charges]

    # What happens.

    @rule(
        pools=st.sampled_from(["p", "p", "p", "q", "pq", ""]),
        size=st.sampled_from([1, 20, 100, 250]),
        held=st.lists(st.sampled_from("dg"), max_size=2, unique=True),
        workflow=st.sampled_from("ab"),
        priority=st.sampled_from([0, 0, 0, 1]),
        max_wait_s=st.sampled_from([None, None, None, 15.0]),
        count=st.sampled_from([1, 1, 2]),
        back=st.booleans(),
        leaves=st.sampled_from([False, False, False, True]),
    )
    def submit(self, pools, size, held, workflow, priority, max_wait_s, count, back, leaves) -> None:
        model, over = self.model, [one for one in self.model.asked if one.granted and one.granted[0].released]
        if not pools and not held:
            held = ["d"]
        calls = tuple(
            CallCharge(
                key=name, pool=self.pools[name], accounting=Accounting(), input_tokens=size, output_tokens=size // 2,
                count=count,
            )
            for name in pools
        )  # fmt: skip
        charges = [charge_of(name, size) for name in pools for _ in range(count)]
        wants: dict[str, float] = {}
        for charge in charges:
            for name, n in charge.items():
                wants[name] = wants.get(name, 0) + n
        wants.update(dict.fromkeys(held, 1.0))
        number = len(model.asked)
        demand = Demand(
            calls=calls, held=tuple((self.gates[name], 1) for name in held), workflow=workflow, priority=priority,
            max_wait_s=max_wait_s, label=f"#{number}",
        )  # fmt: skip
        ticket = over[-1].granted[0].ticket if back and over else None
        asked = Asked(demand, wants, number, charges, ticket is not None)

        def act() -> None:
            self.submitting = asked
            try:
                asked.waiting = self.admission.submit(demand, asked.granted.append, asked.refused.append, ticket=ticket)
            except AdmissionError as error:
                asked.refused.append(error)
                asked.waiting = None
            self.submitting = None
            model.asked.append(asked)
            assert not asked.granted, "answered from inside submit"
            if leaves and asked.waiting is not None:
                self._cancel(asked)

        self.do(act)

    def _cancel(self, asked: Asked) -> None:
        waiting = asked.waiting
        assert waiting is not None
        if waiting.status == "granted" and not asked.granted:
            self._give_back_unsent(asked)
            self._give_back_held(asked)
        if waiting.cancel():
            assert not asked.granted
            asked.cancelled = True

    def _give_back_unsent(self, asked: Asked) -> None:
        for charge in asked.unsent:
            for name, n in charge.items():
                self.model.unsent[name] -= n
        asked.unsent = []

    def _give_back_held(self, asked: Asked) -> None:
        for name, n in asked.wants.items():
            if name in self.model.used:
                self.model.used[name] -= n

    @precondition(lambda self: any(one.running and one.unsent for one in self.model.asked))
    @rule(data=st.data())
    def send(self, data) -> None:
        asked = data.draw(st.sampled_from([one for one in self.model.asked if one.running and one.unsent]))
        charge = asked.unsent.pop(0)
        pool = next(iter(charge))[0]
        call = next(call for call in asked.demand.calls if call.key == pool)
        now = self.clock.now()
        for name, n in charge.items():
            bucket = self.model.buckets[name]
            refuses = bucket.read(now) < n - CLOSE
            assert not refuses or self.model.owed or not self.model.exact, f"the provider of {name} would refuse it"
            bucket.holds -= n
            self.model.unsent[name] -= n

        def act() -> None:
            permit = asked.granted[0].permit(call.key, input_tokens=call.input_tokens, output_tokens=call.output_tokens)
            permit.sent()
            asked.permits.append((permit, call, charge, now))

        self.do(act)

    @precondition(lambda self: any(one.permits for one in self.model.asked))
    @rule(
        data=st.data(),
        kind=st.sampled_from(
            [
                OutcomeKind.COMPLETED,
                OutcomeKind.COMPLETED,
                OutcomeKind.UNKNOWN,
                OutcomeKind.REJECTED,
                OutcomeKind.ABANDONED,
            ]
        ),
        part=st.sampled_from([0.0, 0.1, 1.0, 1.5]),
        twice=st.booleans(),
    )
    def settle(self, data, kind, part, twice) -> None:
        asked = data.draw(st.sampled_from([one for one in self.model.asked if one.permits]))
        permit, call, charge, sent_at = asked.permits.pop(0)
        usage = Usage(input_tokens=int(call.input_tokens * part), output_tokens=int(call.output_tokens * part))
        used = {
            "p:tokens": usage.input_tokens + usage.output_tokens,
            "p:requests": 1,
            "q:input_tokens": usage.input_tokens,
            "q:output_tokens": usage.output_tokens,
        }
        if kind is OutcomeKind.REJECTED:
            used = {**dict.fromkeys(used, 0), "p:requests": 1}
        now = self.clock.now()
        if kind is not OutcomeKind.UNKNOWN:
            for name, n in charge.items():
                bucket = self.model.buckets[name]
                if used[name] > n or bucket.was_full_at <= sent_at:
                    bucket.add(now, n - used[name])
                self.model.owed |= used[name] > n

        def act() -> None:
            for _ in range(1 + twice):
                permit.close(CallOutcome(kind=kind, usage=usage))

        self.do(act)

    @precondition(lambda self: any(one.running for one in self.model.asked))
    @rule(data=st.data())
    def release(self, data) -> None:
        self._release(data.draw(st.sampled_from([one for one in self.model.asked if one.running])))

    def _release(self, asked: Asked) -> None:
        self._give_back_unsent(asked)
        self._give_back_held(asked)
        self.do(asked.granted[0].release)

    @precondition(lambda self: any(one.waits for one in self.model.asked))
    @rule(data=st.data())
    def cancel(self, data) -> None:
        asked = data.draw(st.sampled_from([one for one in self.model.asked if one.waits]))
        self.do(lambda: self._cancel(asked))

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 11.0, 60.0]))
    def advance(self, seconds) -> None:
        self.loop.run_until_complete(self.clock.advance(seconds))
        now = self.clock.now()
        for asked, since, at, said in self.predicted.values():
            others = [one for one in self.model.asked if one is not asked and one.went_since(since, asked.wants)]
            if not others and at < now - 0.01:
                assert asked.granted, f"at {at}, now {now}: {said}"
                assert asked.granted[0].granted_at == pytest.approx(at, abs=0.01), said

    @rule(tpm=st.sampled_from([450, 600, 900]), rpm=st.sampled_from([10, 30]))
    def edit_the_limits(self, tpm, rpm) -> None:
        now, model = self.clock.now(), self.model
        for name, per_minute in (("p:tokens", tpm), ("p:requests", rpm)):
            bucket = model.buckets[name]
            bucket.read(now)
            bucket.capacity, bucket.rate = per_minute, per_minute / 60
            bucket.holds = min(bucket.holds, per_minute)
            if model.unsent[name] > per_minute:
                model.exact = False  # more is under way than the new limit can ever hold: no level tells that
        self.do(lambda: self.admission.pool("p", Limits(tpm=tpm, rpm=rpm)))

    # What must hold after each of them.

    @invariant()
    def each_demand_has_one_end_or_waits(self) -> None:
        for asked in self.model.asked:
            ends = len(asked.granted) + len(asked.refused) + asked.cancelled
            assert ends + asked.waits == 1
            for error in asked.refused:
                assert isinstance(error, (NeverFitsError, AdmissionTimeoutError))

    @invariant()
    def a_level_is_what_the_provider_has(self) -> None:
        now = self.clock.now()
        for account in self.admission.statistics().accounts:
            if account.metered and self.model.exact:
                room = self.model.room(account.name, now)
                assert account.level <= room + CLOSE, f"{account.name} gives {account.level} where {room} are left"
                assert account.level >= room - CLOSE, f"{account.name} keeps {account.level} of {room}"
            elif not account.metered:
                assert account.level == self.model.room(account.name, now)

    @invariant()
    def nobody_waits_without_a_reason(self) -> None:
        model, now = self.model, self.clock.now()
        heads = model.heads()
        headed = {tuple(head.wants) for head in heads}
        for asked in model.asked:
            assert not asked.waits or tuple(asked.wants) in headed, "nobody of its kind is looked at"
        for i, head in enumerate(heads):
            if model.exact:
                short = model.short_of(_a_little_more(head.wants), heads[:i], now)
                assert short is not None, f"{head.demand.label} sleeps: {model.told(now)}"
            assert head.waiting is not None
            said = self.admission.explain(head.waiting)
            assert said.account in head.wants
            assert said.lacks > 0 or said.ahead > 0 or said.earliest_s is not None
            sent = not any(model.unsent.get(name) for name in head.wants)
            if sent and not said.estimate and said.earliest_s is not None and head.demand.max_wait_s is None:
                self.predicted[head.number] = head, now, now + said.earliest_s, said

    def teardown(self) -> None:
        """Everything ends, and everything comes back."""
        try:
            for _ in range(3 * len(self.model.asked) + 3):
                for asked in self.model.asked:
                    for permit, *_ in asked.permits:
                        self.do(lambda permit=permit: permit.close(CallOutcome(kind=OutcomeKind.UNKNOWN)))
                    if asked.running:
                        self._release(asked)
                if not any(one.waits for one in self.model.asked):
                    break
                self.predicted.clear()
                self.loop.run_until_complete(self.clock.advance(120.0))
            for asked in self.model.asked:
                if asked.running:
                    self._release(asked)
            assert not any(one.waits for one in self.model.asked), (
                f"somebody waits for ever: {self.model.told(self.clock.now())}"
            )
            self.loop.run_until_complete(self.clock.advance(400.0))
            for account in self.admission.statistics().accounts:
                assert account.level == pytest.approx(account.capacity), account
        finally:
            self.loop.close()


def _a_little_more(wants: dict[str, float]) -> dict[str, float]:
    """Beyond the rounding: what is this short is really short."""
    return {name: n + 2 * CLOSE for name, n in wants.items()}


TestAgainstTheSlowModel = Against.TestCase
TestAgainstTheSlowModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
