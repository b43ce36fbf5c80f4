"""What decision providers over HTTP share with chat: a wrong address is named, limits are read from refusals too."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.admission.outcome import Dimension, OutcomeKind
from interlock.catalog.entry import ProviderSettings
from interlock.clients.registry import provider_class
from interlock.clients.simulator import Answer, PublishedLimits, SimulatedProvider
from interlock.decisions import DecisionRequest, Noul
from interlock.errors import InvalidRequestError, RateLimitedError

ASK = DecisionRequest({"ticket": "Charged twice"}, {"urgent": Noul.of("Is it urgent?")})


def bound(key: str, url: str, make_entry: Any, make_environment: Any, make_seat: Any) -> tuple[Any, Any, Any]:
    entry = make_entry(key, prices={"input": "1"})
    settings = ProviderSettings(base_url=url, credential="typesafe-api-key", options={"rotations": 1})
    client = provider_class(key)(entry, make_environment(settings))
    seat = make_seat(entry)
    return client, client.bound(seat.binding, seat), seat


@pytest.mark.parametrize("key", ["systemone-decision", "openrouter-decision", "openai-decision", "logprobs-decision"])
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "neither http"),
        ("ftp://127.0.0.1/", "neither http"),
        ("http://user:hunter2@127.0.0.1:9", "a user or a password"),
        ("http://127.0.0.1:9/?key=hunter2", "a query"),
    ],
)
async def test_an_address_that_is_none_is_named(
    key: str, url: str, said: str, make_entry: Any, make_environment: Any, make_seat: Any
) -> None:
    client, decisions, seat = bound(key, url, make_entry, make_environment, make_seat)
    with pytest.raises(InvalidRequestError, match=f"base_url.*of {key}.*{said}") as caught:
        await decisions.decide(ASK)
    assert caught.value.sent is False
    assert "hunter2" not in repr(caught.value)
    assert {outcome.kind for permit in seat.permits for outcome in permit.outcomes} <= {OutcomeKind.UNSENT}
    await client.aclose()


async def test_the_limits_in_a_refusals_headers_reach_the_permit(
    make_entry: Any, make_environment: Any, make_seat: Any
) -> None:
    limits = PublishedLimits(rpm=1, tpm=50_000)
    async with SimulatedProvider(limits=limits, answer=lambda _: Answer(text="A")) as provider:
        client, decisions, seat = bound(
            "logprobs-decision", provider.openai_url, make_entry, make_environment, make_seat
        )
        await decisions.decide(ASK)
        with pytest.raises(RateLimitedError) as caught:
            await decisions.decide(ASK)
        await client.aclose()
    refused = next(p.outcomes[0] for p in seat.permits if p.outcomes[0].kind is OutcomeKind.RATE_LIMITED)
    assert refused.reported[Dimension.REQUESTS].limit == 1
    assert refused.reported[Dimension.REQUESTS].remaining == 0
    assert caught.value.reported is None  # the attempt has noted it
