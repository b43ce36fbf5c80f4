"""A call moves to its model's backup: bound, priced and reserved there, and comes back through a probe."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from interlock.catalog import Grade, Kind, Limits, ModelSpec, Prices
from interlock.clients.breaker import FIRST_OPEN_S, BreakerState
from interlock.errors import (
    InvalidRequestError,
    OverloadedError,
    ProviderRefusalError,
    QuotaExhaustedError,
    RateLimitedError,
    TransientUpstreamError,
    UpstreamError,
)
from interlock.runtime import LLMCall, Runtime
from interlock.runtime.routing import NOBODY

Fail = Callable[[], Exception]


def down() -> Exception:
    return TransientUpstreamError("503", status=503)


def call(model: Any = "a", **settings: Any) -> LLMCall[str]:
    return LLMCall("hello", model=model, max_output_tokens=100, **settings)


class Ring:
    """Models a, b and c, each the next one's fallback; `fails` says which fail, and how."""

    def __init__(self, world: Any, entry: Any, **changes: Any) -> None:
        self.world, self.fails = world, dict[str, Fail]()
        a = entry("a", fallbacks=("b",), **changes)
        world.entries[:] = [a, entry("b", fallbacks=("c",), prices=_dear()), entry("c", fallbacks=("a",))]
        world.provider.always = self.step

    def step(self, seen: Any) -> Any:
        fail = self.fails.get(seen.body["model"].removeprefix("wire-"))
        return self.world.step() if fail is None else self.world.step(error=fail)

    @property
    def asked(self) -> list[str]:
        return [seen.body["model"].removeprefix("wire-") for seen in self.world.provider.seen]


def _dear() -> Prices:
    return Prices(input=Decimal(5), output=Decimal(50), per=1_000_000)


@pytest.fixture
def ring(world: Any, entry: Any) -> Ring:
    return Ring(world, entry)


async def test_two_strikes_and_the_backup_serves(world: Any, ring: Ring) -> None:
    ring.fails = {"a": down}
    async with world.runtime() as runtime:
        handle = runtime.submit(call())
        response = await world.until(handle)
        rows = await runtime.calls()
    assert ring.asked == ["a", "a", "b"]
    assert response.model == "b"
    assert [row.record.model for row in rows] == ["a", "a", "b"]
    assert rows[-1].record.cost == _dear().input * 10 / 1_000_000 + _dear().output * 5 / 1_000_000


async def test_a_chain_that_comes_back_to_itself_tries_each_model_twice_and_ends(world: Any, ring: Ring) -> None:
    ring.fails = dict.fromkeys("abc", down)
    async with world.runtime() as runtime:
        handle = runtime.submit(call(upstream_retries=0))
        with pytest.raises(TransientUpstreamError):
            await world.until(handle)
    assert ring.asked == ["a"]  # no re-runs are wanted, and one strike is no reason to move

    world.provider.seen.clear()
    async with world.runtime() as runtime:
        handle = runtime.submit(call(upstream_retries=3))
        with pytest.raises(TransientUpstreamError) as caught:
            await world.until(handle)
    assert ring.asked == ["a", "a", "b", "b", "c", "c"]
    assert caught.value.attempts == 6


async def test_an_exact_id_without_fallbacks_stays_where_it_is(world: Any, entry: Any, ring: Ring) -> None:
    world.entries.append(entry("alone"))
    ring.fails = {"alone": down}
    async with world.runtime() as runtime:
        with pytest.raises(TransientUpstreamError):
            await world.until(runtime.submit(call("alone")))
    assert ring.asked == ["alone"] * 4


async def test_an_open_breaker_routes_the_next_call_at_once_and_a_probe_brings_it_back(world: Any, ring: Ring) -> None:
    ring.fails = {"a": down}
    async with world.runtime() as runtime:
        for _ in range(2):
            await world.until(runtime.submit(call()))
        assert ring.asked == ["a", "a", "b", "a", "b"]  # the third failure in a row trips it
        assert runtime.statistics().breakers[0].state is BreakerState.OPEN
        ring.fails = {}
        world.provider.seen.clear()
        await world.until(runtime.submit(call()))
        assert ring.asked == ["b"]
        await world.clock.advance(FIRST_OPEN_S)
        world.provider.seen.clear()
        handles = [runtime.submit(call()) for _ in range(10)]
        await world.until(asyncio.gather(*handles))
        assert Counter(ring.asked) == {"a": 1, "b": 9}  # one probe
        await world.until(runtime.submit(call()))  # the second success closes it
        assert runtime.statistics().breakers == ()
        world.provider.seen.clear()
        await world.until(asyncio.gather(*[runtime.submit(call()) for _ in range(5)]))
    assert ring.asked == ["a"] * 5


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(lambda: InvalidRequestError("400", status=400), id="400"),
        pytest.param(lambda: ProviderRefusalError("no", status=200), id="refused"),
        pytest.param(None, id="cancelled"),
    ],
)
async def test_b18_however_a_probe_ends_the_next_one_may_go(world: Any, ring: Ring, ends: Fail | None) -> None:
    ring.fails = {"a": down}
    async with world.runtime() as runtime:
        for _ in range(2):
            await world.until(runtime.submit(call()))
        await world.clock.advance(FIRST_OPEN_S)
        ring.fails = {} if ends is None else {"a": ends}
        probe = runtime.submit(call())
        await world.clock.advance(0.5)
        if ends is None:
            probe.cancel()
        with pytest.raises(Exception):  # noqa: B017, PT011 - each its own
            await world.until(probe)
        ring.fails = {}
        world.provider.seen.clear()
        await world.until(runtime.submit(call()))
    assert ring.asked == ["a"]


async def test_b11_an_account_without_money_is_left_after_one_request(
    world: Any, ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANOTHER", "key")
    ring.fails = {"a": lambda: QuotaExhaustedError("no credit", status=400)}
    world.entries[1] = world.entries[1].model_copy(update={"credential": "another"})
    async with world.runtime() as runtime:
        assert (await world.until(runtime.submit(call()))).model == "b"
        assert (await world.until(runtime.submit(call()))).model == "b"
    assert ring.asked == ["a", "b", "b"]


async def test_without_a_backup_an_account_without_money_fails_at_once(world: Any, entry: Any, ring: Ring) -> None:
    world.entries[:] = [entry("a")]
    ring.fails = {"a": lambda: QuotaExhaustedError("no credit", status=400)}
    async with world.runtime() as runtime:
        for _ in range(2):
            with pytest.raises(QuotaExhaustedError):
                await world.until(runtime.submit(call()))
    assert ring.asked == ["a", "a"]


@pytest.mark.parametrize("hint_s", [61.0, 600.0, 133_107.0])
async def test_b48_a_long_hint_sends_the_waiting_to_their_backup(world: Any, entry: Any, hint_s: float) -> None:
    ring = Ring(world, entry, limits=Limits(rpm=60, burst_s=1))  # one a second: the rest wait
    ring.fails = {"a": lambda: RateLimitedError("closed", status=429, retry_after_s=hint_s)}
    async with world.runtime() as runtime:
        began_s = world.clock.now()
        handles = [runtime.submit(call()) for _ in range(5)]
        responses = await world.until(asyncio.gather(*handles))
        took_s = world.clock.now() - began_s
    assert {response.model for response in responses} == {"b"}
    assert ring.asked.count("a") <= 2  # sent before the answer came
    assert took_s < 10.0


async def test_b48_a_short_hint_is_waited_out(world: Any, ring: Ring) -> None:
    world.provider.script(world.step(error=RateLimitedError("busy", status=429, retry_after_s=60.0)))
    async with world.runtime() as runtime:
        assert (await world.until(runtime.submit(call()))).model == "a"
    assert ring.asked == ["a", "a"]
    assert world.provider.seen[1].at_s - world.provider.seen[0].at_s >= 60.0


async def test_a_grade_goes_to_the_listed_backup_before_its_next_model(world: Any, entry: Any, ring: Ring) -> None:
    world.entries[1] = entry("b", grade=Grade.XL)
    ring.fails = {"a": lambda: OverloadedError("529", status=529)}
    async with world.runtime() as runtime:
        response = await world.until(runtime.submit(call(Grade.SMALL)))
    assert response.model == "b"
    assert ring.asked == ["a", "a", "b"]


async def test_whoever_waits_for_a_model_that_has_failed_meanwhile_is_bound_anew(world: Any, entry: Any) -> None:
    ring = Ring(world, entry, limits=Limits(rpm=60, burst_s=3))
    ring.fails = {"a": down}
    async with world.runtime() as runtime:
        handles = [runtime.submit(call()) for _ in range(12)]
        responses = await world.until(asyncio.gather(*handles))
        statistics = runtime.statistics()
    assert {response.model for response in responses} == {"b"}
    assert ring.asked.count("a") <= 6
    assert statistics.admission.account("model:a:requests").debt == 0
    assert all(account.waiting == 0 for account in statistics.admission.accounts)


async def test_under_a_cap_the_backup_is_priced_as_itself(world: Any, ring: Ring) -> None:
    ring.fails = {"a": down}
    async with world.runtime(cost_cap="0.002") as runtime:  # a: about 0.001 at worst, b: about 0.005
        with pytest.raises(Exception, match="cap") as caught:
            await world.until(runtime.submit(call()))
    assert not isinstance(caught.value, UpstreamError)
    assert ring.asked == ["a", "a"]


async def test_a_stream_moves_on_before_its_first_piece(world: Any, ring: Ring) -> None:
    ring.fails = {"a": down}

    async def read(runtime: Runtime) -> tuple[str, str]:
        async with runtime.llm("a").stream_response("hello") as pieces:
            text = "".join([piece.text async for piece in pieces])
            return text, pieces.response.model

    async with world.runtime() as runtime:
        assert await world.until(read(runtime)) == ("ok", "b")
    assert ring.asked == ["a", "a", "b"]


@pytest.mark.parametrize("named", [True, False], ids=["by its id", "by the pin"])
@pytest.mark.parametrize(("identity", "serves"), [("vectors", "b"), ("other-vectors", "a")])
async def test_only_the_same_embedding_model_stands_in_for_one(
    world: Any, entry: Any, named: bool, identity: str, serves: str
) -> None:
    """Vectors of another model could not be compared with those there are: better to wait than to mix."""
    fields = {"kind": Kind.EMBEDDINGS, "grade": None, "max_output_tokens": None, "dimensions": 8}
    world.entries[:] = [
        entry("a", identity="vectors", fallbacks=("b",), **fields),
        entry("b", identity=identity, prices=_dear(), **fields),
    ]
    spec = ModelSpec("a" if named else None, kind=Kind.EMBEDDINGS)
    async with world.runtime() as runtime:
        desk = runtime._dispatcher.desk
        first = desk.bind(spec, 10)
        assert first.entry.id == "a"
        for _ in range(3):
            desk.routing.heard(first.entry, "llm_transient", desk.pool(first.entry))
        assert desk.bind(spec, 10).entry.id == serves
        assert desk.moves_on(first, NOBODY) is (serves == "b")
