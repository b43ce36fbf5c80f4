"""A wrong address is named before anything is reserved, and the headers of a refusal tell the limits."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.admission.outcome import Dimension, OutcomeKind
from interlock.clients.simulator import PublishedLimits, SimulatedProvider
from interlock.errors import InvalidRequestError, RateLimitedError

from .conftest import HOSTED, OPENAI, Bench, Wire


@pytest.mark.parametrize("wire", HOSTED, ids=lambda wire: wire.id)
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "neither http"),
        ("http://127.0.0.1:99999/", "no address"),
        ("http://user:hunter2@127.0.0.1:9", "a user or a password"),
        ("http://127.0.0.1:9/?key=hunter2", "a query"),
    ],
)
async def test_an_address_that_is_none_is_named(bench: Bench, wire: Wire, url: str, said: str) -> None:
    embeddings, seat = bench.client(wire, base_url=url)
    with pytest.raises(InvalidRequestError, match=f"base_url.*of {wire.key}.*{said}") as caught:
        await embeddings.embed("Hello.")
    assert caught.value.sent is False
    assert "hunter2" not in repr(caught.value)
    assert seat.permits == []


async def test_the_limits_in_a_refusals_headers_reach_the_permit(bench: Bench, make_seat: Any) -> None:
    async with SimulatedProvider(limits=PublishedLimits(rpm=1, tpm=90_000)) as limited:
        bench.provider, before = limited, bench.provider
        embeddings, seat = bench.client(OPENAI)
        await embeddings.embed("Hello.")
        with pytest.raises(RateLimitedError):
            await embeddings.embed("Hello.")
        bench.provider = before
    refused = seat.permits[-1].outcomes[0]
    assert refused.kind is OutcomeKind.RATE_LIMITED
    assert refused.reported[Dimension.REQUESTS].remaining == 0
