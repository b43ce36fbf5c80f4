"""Cost caps: what is refused, what waits, and that money is neither lost nor spent twice."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from interlock.admission import Cap, SpendGate, SpendHold
from interlock.errors import AdmissionError, SpendCapExceededError


class Spender:
    """A gate and who was answered what."""

    def __init__(self, **caps: str) -> None:
        self.gate = SpendGate()
        self.granted: list[SpendHold] = []
        self.refused: list[AdmissionError] = []
        for name, amount in caps.items():
            self.gate.add(Cap(name=name, amount=Decimal(amount)))

    def ask(self, amount: str, *caps: str) -> SpendHold:
        return self.gate.submit(caps, Decimal(amount), "USD", self.granted.append, self.refused.append)

    def book(self, name: str) -> tuple[Decimal, Decimal]:
        (row,) = [row for row in self.gate.statistics() if row.cap.name == name]
        return row.spent, row.held


async def told() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_an_ask_holds_its_worst_price_and_settles_to_the_real_one() -> None:
    s = Spender(run="1.00")
    hold = s.ask("0.40", "run")
    assert s.granted == [], "never from inside submit"
    await told()
    assert s.granted == [hold]
    assert s.book("run") == (Decimal(0), Decimal("0.40"))
    hold.settle(Decimal("0.15"))
    hold.settle(Decimal("9.99"))
    hold.release()
    assert s.book("run") == (Decimal("0.15"), Decimal(0)), "exactly once"


async def test_small_amounts_are_told_as_people_write_them() -> None:
    s = Spender(run="0.0000001")
    with pytest.raises(SpendCapExceededError) as refused:
        s.ask("0.00000025", "run")
    assert str(refused.value) == (
        "the cost cap 'run' is 0.0000001 USD: 0 is spent, 0 is held by calls under way, and this call may cost "
        "0.00000025; nothing was sent"
    )


async def test_it_is_refused_only_when_spent_and_ask_pass_the_cap() -> None:
    s = Spender(run="1.00")
    first = s.ask("0.70", "run")
    second = s.ask("0.50", "run")  # only the sibling's hold is in the way: it waits
    await told()
    assert s.granted == [first]
    first.settle(Decimal("0.20"))
    await told()
    assert s.granted == [first, second]
    second.settle(Decimal("0.50"))
    with pytest.raises(SpendCapExceededError) as refused:
        s.ask("0.31", "run")
    error = refused.value
    assert (error.cap, error.spent, error.held, error.ask, error.currency) == ("1.00", "0.70", "0.00", "0.31", "USD")
    s.ask("0.30", "run")
    await told()
    assert len(s.granted) == 3


async def test_equal_amounts_go_until_the_cap_exactly_and_in_their_order() -> None:
    s = Spender(run="1.00")
    holds = [s.ask("0.25", "run") for _ in range(7)]
    await told()
    assert s.granted == holds[:4]
    for hold in holds[:4]:
        hold.settle(Decimal("0.20"))
    await told()
    assert s.granted == holds[:4], "0.80 + 0.25 pass the cap"
    assert [type(error) for error in s.refused] == [SpendCapExceededError] * 3
    s.ask("0.20", "run")
    s.ask("0", "run")
    await told()
    assert len(s.granted) == 6


async def test_whoever_waits_is_refused_when_the_money_is_gone() -> None:
    s = Spender(run="1.00")
    first = s.ask("0.70", "run")
    s.ask("0.50", "run")
    small = s.ask("0.20", "run")
    first.settle(Decimal("0.60"))
    await told()
    assert [type(error) for error in s.refused] == [SpendCapExceededError]
    assert s.granted == [first, small]


@pytest.mark.parametrize("actual", [None, Decimal("NaN"), Decimal("Infinity"), Decimal("-0.10")])
async def test_an_unknown_price_counts_whole_and_is_marked(actual: Decimal | None) -> None:
    s = Spender(run="1.00")
    s.ask("0.40", "run").settle(actual)
    (row,) = s.gate.statistics()
    assert (row.spent, row.estimated, row.held) == (Decimal("0.40"), Decimal("0.40"), Decimal(0))


async def test_nothing_running_is_cut_when_it_costs_more_than_its_ask() -> None:
    s = Spender(run="1.00")
    s.ask("0.40", "run").settle(Decimal("1.70"))
    assert s.gate.spent("run") == Decimal("1.70")
    with pytest.raises(SpendCapExceededError):
        s.ask("0", "run")


async def test_a_dear_ask_is_not_starved_by_cheap_ones() -> None:
    s = Spender(run="1.00")
    first = s.ask("0.60", "run")
    dear = s.ask("0.90", "run")
    cheap = [s.ask("0.10", "run") for _ in range(5)]
    await told()
    assert s.granted == [first], "there is room for the cheap ones, but an older one is short of it"
    first.settle(Decimal("0.05"))
    await told()
    assert s.granted == [first, dear]
    dear.release()
    await told()
    assert s.granted == [first, dear, *cheap]


async def test_a_younger_ask_of_another_run_does_not_pass_on_the_cap_an_older_is_short_of() -> None:
    s = Spender(deployment="1.00", a="9", b="9")
    first = s.ask("0.60", "a", "deployment")
    dear = s.ask("0.90", "a", "deployment")
    cheap = s.ask("0.10", "b", "deployment")
    await told()
    assert s.granted == [first]
    first.settle(Decimal("0.05"))
    await told()
    assert s.granted == [first, dear], "and the cheap one waits: 0.05 + 0.90 + 0.10 pass the cap"
    dear.settle(Decimal("0.01"))
    await told()
    assert s.granted == [first, dear, cheap]


async def test_one_settlement_lets_several_runs_go() -> None:
    s = Spender(deployment="1.00", a="9", b="9", c="9")
    first = s.ask("1.00", "a", "deployment")
    others = [s.ask("0.30", run, "deployment") for run in ("a", "b", "c")]
    await told()
    first.settle(Decimal(0))
    await told()
    assert s.granted == [first, *others]


async def test_leaving_while_first_lets_the_next_go() -> None:
    s = Spender(run="1.00", other="9")
    s.ask("0.60", "run")
    dear = s.ask("0.90", "run")
    behind, beside = s.ask("0.10", "run"), s.ask("0.20", "run", "other")
    await told()
    assert len(s.granted) == 1
    dear.release()
    await told()
    assert s.granted[1:] == [behind, beside]


async def test_asks_that_leave_in_any_order_are_not_met_again() -> None:
    s = Spender(run="1.00")
    first = s.ask("1.00", "run")
    waiting = [s.ask("0.50", "run") for _ in range(200)]
    for hold in waiting[150:20:-1]:
        hold.release()
    (row,) = s.gate.statistics()
    assert row.waiting == 70
    first.settle(Decimal(0))
    await told()
    assert s.granted == [first, *waiting[:2]]
    for hold in [*waiting[:20], *waiting[20::-1]]:
        hold.release()
    await told()
    assert s.granted[-2:] == waiting[151:153]


async def test_a_run_at_its_own_cap_does_not_stop_the_others() -> None:
    s = Spender(deployment="10.00", a="1.00", b="1.00")
    s.ask("0.80", "a", "deployment")
    s.ask("0.80", "a", "deployment")
    other = s.ask("0.80", "b", "deployment")
    await told()
    assert other in s.granted
    assert len(s.granted) == 2


async def test_another_currency_is_refused_by_name() -> None:
    s = Spender(run="1.00")
    with pytest.raises(AdmissionError, match=r"'run' is in USD.*EUR"):
        s.gate.submit(["run"], Decimal(1), "EUR", s.granted.append, s.refused.append)
    with pytest.raises(ValueError, match="USD"):
        s.gate.add(Cap(name="run", amount=Decimal(2), currency="EUR"))


async def test_a_raised_cap_lets_the_waiting_go_and_books_are_kept() -> None:
    s = Spender(run="1.00")
    s.ask("0.80", "run")
    waits = s.ask("0.80", "run")
    s.gate.add(Cap(name="run", amount=Decimal("2.00")))
    await told()
    assert s.granted[-1] is waits
    assert s.book("run") == (Decimal(0), Decimal("1.60"))


async def test_a_resumed_run_starts_with_what_it_has_spent() -> None:
    s = Spender()
    s.gate.add(Cap(name="run", amount=Decimal(1)), spent=Decimal("0.90"))
    with pytest.raises(SpendCapExceededError):
        s.ask("0.20", "run")


async def test_a_cap_can_be_forgotten_when_nobody_waits_for_it() -> None:
    s = Spender(run="1.00")
    hold = s.ask("0.80", "run")
    waits = s.ask("0.80", "run")
    with pytest.raises(ValueError, match="waiting"):
        s.gate.remove("run")
    waits.release()
    s.gate.remove("run")
    hold.settle(Decimal("0.1"))
    s.gate.remove("run")
    assert s.gate.statistics() == ()
    with pytest.raises(KeyError):
        s.ask("0.1", "run")


async def test_a_callback_that_raises_keeps_no_money() -> None:
    s = Spender(run="1.00")
    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: seen.append(context["exception"]))

    def broken(hold: SpendHold) -> None:
        raise RuntimeError("mine")

    s.gate.submit(["run"], Decimal(1), "USD", broken, s.refused.append)
    second = s.ask("1.00", "run")
    await told()
    assert s.granted == [second]
    assert [str(error) for error in seen] == ["mine"]


@pytest.mark.parametrize("ask", ["NaN", "Infinity", "-1"])
async def test_an_ask_is_a_number(ask: str) -> None:
    with pytest.raises(ValueError, match="finite"):
        Spender(run="1").ask(ask, "run")


class SpendMachine(RuleBasedStateMachine):
    """Any order of asking, settling, releasing and raising caps, against plain sums over the holds."""

    NAMES = ("deployment", "a", "b")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.spender = Spender(deployment="10", a="4", b="4")
        self.holds: list[tuple[SpendHold, tuple[str, ...]]] = []
        self.spent = dict.fromkeys(self.NAMES, Decimal(0))

    def do(self, act) -> None:
        async def inside() -> None:
            act()
            await told()

        self.loop.run_until_complete(inside())

    @rule(ask=st.decimals("0", "3", places=2), caps=st.sampled_from([("deployment", "a"), ("deployment", "b"), ("a",)]))
    def ask(self, ask: Decimal, caps: tuple[str, ...]) -> None:
        def act() -> None:
            never = any(self.spent[n] + ask > self.cap(n) for n in caps)
            try:
                self.holds.append((self.spender.ask(str(ask), *caps), caps))
            except SpendCapExceededError:
                assert never
            else:
                assert not never

        self.do(act)

    def of(self, *states: str) -> list[tuple[SpendHold, tuple[str, ...]]]:
        return [(hold, caps) for hold, caps in self.holds if hold.state in states]

    def cap(self, name: str) -> Decimal:
        return next(row.cap.amount for row in self.spender.gate.statistics() if row.cap.name == name)

    @precondition(lambda self: self.of("held"))
    @rule(data=st.data(), part=st.decimals("0", "1.2", places=2), known=st.booleans())
    def settle(self, data: st.DataObject, part: Decimal, known: bool) -> None:
        hold, caps = data.draw(st.sampled_from(self.of("held")))
        actual = hold.ask * part if known else None
        for name in caps:
            self.spent[name] += hold.ask if actual is None else actual
        self.do(lambda: hold.settle(actual))

    @precondition(lambda self: self.of("held", "waiting"))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        hold, _ = data.draw(st.sampled_from(self.of("held", "waiting")))
        self.do(hold.release)

    @rule(name=st.sampled_from(NAMES), more=st.integers(0, 2))
    def raise_cap(self, name: str, more: int) -> None:
        cap = Cap(name=name, amount=self.cap(name) + more)
        self.do(lambda: self.spender.gate.add(cap))

    @invariant()
    def the_books_are_sums_over_the_holds(self) -> None:
        for row in self.spender.gate.statistics():
            name = row.cap.name
            assert row.spent == self.spent[name]
            assert row.held == sum((h.ask for h, caps in self.of("held") if name in caps), Decimal(0))
            assert row.waiting == sum(1 for _, caps in self.of("waiting") if name in caps)

    @invariant()
    def a_hold_was_granted_only_where_it_fitted_and_nobody_waits_without_a_reason(self) -> None:
        waiting = self.of("waiting")
        for i, (hold, caps) in enumerate(waiting):
            reasons = [
                self.spent[n] + self.held(n) + hold.ask > self.cap(n) or any(n in older for _, older in waiting[:i])
                for n in caps
            ]
            assert any(reasons), "it could go"

    def held(self, name: str) -> Decimal:
        return sum((h.ask for h, caps in self.of("held") if name in caps), Decimal(0))

    @invariant()
    def everybody_is_answered_once(self) -> None:
        granted = self.spender.granted
        assert len({id(hold) for hold in granted}) == len(granted)
        assert all(hold.state != "waiting" for hold in granted)
        assert len(self.spender.refused) == len(self.of("refused"))

    def teardown(self) -> None:
        try:
            self.finish()
        finally:
            self.loop.close()

    def finish(self) -> None:
        for _ in range(len(self.holds) + 1):
            for hold, _ in self.of("held"):
                self.do(hold.release)
        assert not self.of("held", "waiting"), "somebody was forgotten"


TestSpendMachine = SpendMachine.TestCase
TestSpendMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
