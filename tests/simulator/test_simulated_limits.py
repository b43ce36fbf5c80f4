"""The provider's limits bind exactly, on a clock that only the test moves."""

from __future__ import annotations

import datetime
from typing import Any

import httpx2
import pytest

from interlock.clients.simulator import Answer, Goodput, PublishedLimits, SimulatedProvider, Step
from interlock.clients.simulator.buckets import Charge, Meter, TokenBucket

ANTHROPIC = "/v1/messages"
OPENAI = "/v1/chat/completions"


def client_of(provider: SimulatedProvider) -> httpx2.AsyncClient:
    """Straight into the app: no socket is needed to see a limit bind."""
    transport = httpx2.ASGITransport(app=provider.app)
    headers = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
    return httpx2.AsyncClient(transport=transport, base_url="http://simulated", headers=headers)


def body(tokens: int = 1, model: str = "m", **more: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": "word" * tokens}]} | more


async def admitted(client: httpx2.AsyncClient, path: str, asked: dict[str, Any], most: int = 200) -> int:
    """How many requests go through before the first is refused."""
    for count in range(most):
        if (await client.post(path, json=asked)).status_code == 429:
            return count
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize("path", [ANTHROPIC, OPENAI])
async def test_requests_bind_at_the_burst_and_then_at_the_rate(path: str, time: Any) -> None:
    provider = SimulatedProvider(limits=PublishedLimits(rpm=60, burst_s=10), now=time.now)
    async with client_of(provider) as client:
        assert await admitted(client, path, body()) == 10
        time.now_s += 0.999
        assert await admitted(client, path, body()) == 0
        time.now_s += 0.001
        assert await admitted(client, path, body()) == 1
        time.now_s += 3600
        assert await admitted(client, path, body()) == 10
    assert provider.refused == 4
    assert [seen.refused_by for seen in provider.requests if seen.status == 429] == ["requests"] * 4


async def test_anthropic_input_is_charged_at_the_start_and_output_as_it_is_made(time: Any) -> None:
    limits = PublishedLimits(input_tpm=600, output_tpm=120)
    provider = SimulatedProvider(
        limits=limits, answer=lambda _: Answer(text="x", output_tokens=100), now=time.now, sleep=time.sleep
    )
    async with client_of(provider) as client:
        assert (await client.post(ANTHROPIC, json=body(500, max_tokens=100_000))).status_code == 200  # no reservation
        refused = await client.post(ANTHROPIC, json=body(101))
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert "600 input tokens per minute" in refused.json()["error"]["message"]
        assert refused.headers["retry-after"] == "1"
        assert (await client.post(ANTHROPIC, json=body(100))).status_code == 200  # output: 120 - 200 = -80
        time.now_s += 40  # output: 0
        refused = await client.post(ANTHROPIC, json=body(1))
        assert provider.requests[-1].refused_by == "output-tokens"
        time.now_s += 0.5
        assert (await client.post(ANTHROPIC, json=body(1))).status_code == 200


async def test_openai_reserves_the_output_limit_and_settles_to_what_was_made(time: Any) -> None:
    provider = SimulatedProvider(
        limits=PublishedLimits(tpm=1_000), answer=lambda _: Answer(text="x", output_tokens=10), now=time.now
    )
    async with client_of(provider) as client:
        first = await client.post(OPENAI, json=body(100, max_tokens=900))
        assert first.status_code == 200
        assert first.headers["x-ratelimit-remaining-tokens"] == "0"  # as it stood when the answer began
        second = await client.post(OPENAI, json=body(100, max_tokens=791))
        assert second.status_code == 429  # 1000 - 110 = 890 are left
        assert second.json()["error"]["code"] == "rate_limit_exceeded"
        assert second.json()["error"]["type"] == "tokens"
        assert "Limit 1000, Used 110, Requested 891" in second.json()["error"]["message"]
        assert int(second.headers["retry-after-ms"]) == 60
        assert (await client.post(OPENAI, json=body(100, max_tokens=790))).status_code == 200
        too_large = await client.post(OPENAI, json=body(100, max_tokens=901))
        assert "Request too large for m on tokens per min (TPM): Limit 1000" in too_large.json()["error"]["message"]


async def test_openai_counts_requests_refused_for_their_tokens(time: Any) -> None:
    provider = SimulatedProvider(limits=PublishedLimits(tpm=100, rpm=5), now=time.now)
    async with client_of(provider) as client:
        for _ in range(5):
            assert (await client.post(OPENAI, json=body(1, max_tokens=200))).json()["error"]["type"] == "tokens"
        assert (await client.post(OPENAI, json=body(1, max_tokens=2))).json()["error"]["type"] == "requests"


async def test_anthropic_headers_are_as_published(time: Any) -> None:
    limits = PublishedLimits(rpm=60, input_tpm=60_000, output_tpm=600)
    noon = datetime.datetime(2026, 11, 30, 14, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    provider = SimulatedProvider(limits=limits, now=time.now, wall=lambda: noon, answer=lambda _: "four")
    async with client_of(provider) as client:
        headers = (await client.post(ANTHROPIC, json=body(6_600))).headers
    found = {name.removeprefix("anthropic-ratelimit-"): value for name, value in headers.items() if "ratelimit" in name}
    assert found == {
        "requests-limit": "60",
        "requests-remaining": "59",
        "requests-reset": "2026-11-30T12:00:01Z",
        "input-tokens-limit": "60000",
        "input-tokens-remaining": "53000",  # 53,400 in thousands
        "input-tokens-reset": "2026-11-30T12:00:06Z",
        "output-tokens-limit": "600",
        "output-tokens-remaining": "599",
        "output-tokens-reset": "2026-11-30T12:00:00Z",
    }
    datetime.datetime.fromisoformat(found["requests-reset"])


async def test_openai_headers_are_as_published(time: Any) -> None:
    provider = SimulatedProvider(limits=PublishedLimits(rpm=6, tpm=6_000), now=time.now)
    async with client_of(provider) as client:
        headers = (await client.post(OPENAI, json=body(20, max_tokens=80))).headers
        found = {name: value for name, value in headers.items() if name.startswith("x-ratelimit")}
        assert found == {
            "x-ratelimit-limit-requests": "6",
            "x-ratelimit-remaining-requests": "5",
            "x-ratelimit-reset-requests": "10s",
            "x-ratelimit-limit-tokens": "6000",
            "x-ratelimit-remaining-tokens": "5900",
            "x-ratelimit-reset-tokens": "1s",
        }
        for _ in range(5):
            last = await client.post(OPENAI, json=body(20, max_tokens=80))
        assert last.headers["x-ratelimit-reset-requests"] == "1m0s"


async def test_headers_may_be_left_out(time: Any) -> None:
    provider = SimulatedProvider(limits=PublishedLimits(rpm=1), headers=False, now=time.now)
    async with client_of(provider) as client:
        for path in (ANTHROPIC, OPENAI):
            first, second = await client.post(path, json=body()), await client.post(path, json=body())
            assert not [name for name in [*first.headers, *second.headers] if "ratelimit" in name]
            assert second.headers["retry-after"] == "60"
            time.now_s += 60


async def test_a_provider_that_serves_less_than_it_says(time: Any) -> None:
    provider = SimulatedProvider(limits=PublishedLimits(rpm=600, burst_s=1), serves=0.3, now=time.now)
    async with client_of(provider) as client:
        assert await admitted(client, ANTHROPIC, body()) == 10
        time.now_s += 1
        response = await client.post(ANTHROPIC, json=body())
        assert response.headers["anthropic-ratelimit-requests-limit"] == "600"
        assert response.headers["anthropic-ratelimit-requests-remaining"] == "9"  # what it says, not what it serves
        assert await admitted(client, ANTHROPIC, body()) == 2
        provider.serves = 1.0
        time.now_s += 0.5
        assert await admitted(client, ANTHROPIC, body()) == 5
        provider.serves = 0.1
        time.now_s += 1
        assert await admitted(client, ANTHROPIC, body()) == 1
    with pytest.raises(ValueError, match="share"):
        provider.serves = 0


async def test_each_model_has_its_own_limits(time: Any) -> None:
    limits = {"small": PublishedLimits(rpm=2), "*": PublishedLimits(rpm=3)}
    provider = SimulatedProvider(limits=limits, now=time.now)
    async with client_of(provider) as client:
        for model, most in (("small", 2), ("one", 3), ("other", 3)):
            assert await admitted(client, ANTHROPIC, body(model=model)) == most
        unlimited = SimulatedProvider(limits={"small": PublishedLimits(rpm=2)}, now=time.now)
        async with client_of(unlimited) as free:
            assert all([(await free.post(ANTHROPIC, json=body())).status_code == 200 for _ in range(20)])


async def test_cache_reads_are_free_on_anthropic(time: Any) -> None:
    provider = SimulatedProvider(limits=PublishedLimits(input_tpm=6_000), now=time.now)
    system = [{"type": "text", "text": "rule" * 2_000, "cache_control": {"type": "ephemeral"}}]
    async with client_of(provider) as client:
        assert await admitted(client, ANTHROPIC, body(400, system=system)) == 10  # 2,000 once, 400 each


async def test_scripted_failures_are_answered_before_the_limits_are_asked(time: Any) -> None:
    provider = SimulatedProvider(limits=PublishedLimits(rpm=1), now=time.now)
    provider.script(Step.overloaded(), Step.rate_limited(7))
    async with client_of(provider) as client:
        statuses = [(await client.post(ANTHROPIC, json=body())).status_code for _ in range(4)]
    assert statuses == [529, 429, 200, 429]
    assert provider.refused == 1


async def test_a_step_is_kept_for_a_request_that_is_let_through(time: Any) -> None:
    provider = SimulatedProvider(limits=PublishedLimits(rpm=1), now=time.now)
    async with client_of(provider) as client:
        await client.post(ANTHROPIC, json=body())
        provider.script(Step.answer("mine"), Step.answer("next"))
        assert (await client.post(ANTHROPIC, json=body())).status_code == 429
        time.now_s += 60
        assert (await client.post(ANTHROPIC, json=body())).json()["content"][0]["text"] == "mine"
    assert provider.steps_left == 1


async def test_goodput_is_measured_against_what_is_really_served(time: Any) -> None:
    provider = SimulatedProvider(limits=PublishedLimits(rpm=60, burst_s=6), serves=0.5, now=time.now)
    async with client_of(provider) as client:
        assert await admitted(client, ANTHROPIC, body()) == 6
        began = time.now_s
        for _ in range(10):
            time.now_s += 2
            await client.post(ANTHROPIC, json=body())
    whole = provider.goodput()
    assert (whole.answered, whole.refused, whole.window_s) == (16, 1, 20)
    assert whole.fractions == {"requests": pytest.approx(16 / (6 + 10))}
    later = provider.goodput("m", since_s=began + 1)
    assert later.fraction == pytest.approx(10 / 9.5)
    assert provider.goodput("other") == Goodput(
        window_s=20, answered=0, refused=0, input_tokens=0, output_tokens=0, fractions={"requests": 0.0}
    )


@pytest.mark.parametrize("field", ["rpm", "tpm", "input_tpm", "output_tpm", "burst_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_limits_are_finite_and_above_zero(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        PublishedLimits(**{field: value})


def test_a_bucket_refills_continuously_and_may_owe() -> None:
    bucket = TokenBucket(capacity=10, rate_per_s=2, level=10, at_s=0)
    bucket.take(25, 0)
    assert bucket.level_at(0) == -15
    assert bucket.wait_s(1, 0) == 8
    assert bucket.level_at(8) == 1
    assert bucket.wait_s(1, 8) == 0
    assert bucket.level_at(1_000) == 10
    assert bucket.wait_s(50, 0) > 0
    bucket.take(-100, 8)
    assert bucket.level_at(8) == 10
    bucket.take(1, 7)  # a clock that steps back gives nothing and takes nothing
    assert bucket.level_at(8) == 9


def test_a_charge_is_taken_whole_or_not_at_all() -> None:
    meter = Meter(PublishedLimits(rpm=10, tpm=100), 1.0, 0)
    refused = meter.admit(Charge(1, 101, 0, 0), 0)
    assert refused is not None
    assert (refused.dimension, refused.too_large) == ("tokens", True)
    assert meter.published(0)["requests"].remaining == 10
    assert meter.admit(Charge(1, 100, 0, 0), 0) is None
    assert meter.published(0)["tokens"].remaining == 0


async def test_limits_may_change_while_it_serves(time: Any) -> None:
    provider = SimulatedProvider(limits={"m": PublishedLimits(rpm=2)}, now=time.now)
    async with client_of(provider) as client:
        assert await admitted(client, ANTHROPIC, body()) == 2
        provider.publish("m", PublishedLimits(rpm=2))  # the same: nothing begins anew
        assert await admitted(client, ANTHROPIC, body()) == 0
        provider.publish("m", PublishedLimits(rpm=3))
        assert await admitted(client, ANTHROPIC, body()) == 3


async def test_goodput_of_requests_that_are_no_longer_kept_is_not_guessed(time: Any) -> None:
    provider = SimulatedProvider(limits=PublishedLimits(rpm=60), keep_requests=2, now=time.now)
    async with client_of(provider) as client:
        for _ in range(3):
            time.now_s += 1
            await client.post(ANTHROPIC, json=body())
    with pytest.raises(ValueError, match="keep_requests"):
        provider.goodput()
    assert provider.goodput(since_s=time.now_s - 1).answered == 2
