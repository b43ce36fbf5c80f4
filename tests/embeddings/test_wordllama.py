"""The local model itself: right vectors, found texts, an event loop that stays free."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlock.embeddings.providers.wordllama import WordLlamaEmbeddingsClient
from interlock.errors import MalformedResponseError


@pytest.fixture
def embeddings(make_entry: Any, make_environment: Any, make_seat: Any) -> Any:
    entry = make_entry("wordllama", dimensions=256)
    seat = make_seat(entry)
    return WordLlamaEmbeddingsClient(entry, make_environment()).bound(seat.binding, seat)


DOCUMENTS = {
    "argparse": "Command-line parsing library: positional and optional arguments, help and usage messages.",
    "json": "Encode and decode JSON, the JavaScript Object Notation data interchange format.",
    "smtplib": "SMTP client to send e-mail messages to a mail server.",
    "sqlite3": "Interface to SQLite databases: connections, cursors and SQL statements.",
    "zipfile": "Read and write ZIP archive files, with compression.",
    "datetime": "Dates and times: calendars, time zones and durations.",
    "random": "Generate pseudo-random numbers and shuffle sequences.",
    "threading": "Threads, locks and semaphores to run work concurrently.",
}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("parse command line arguments", "argparse"),
        ("send an email", "smtplib"),
        ("query a SQL database", "sqlite3"),
        ("compress files into an archive", "zipfile"),
        ("what day of the calendar is it", "datetime"),
        ("acquire a lock between threads", "threading"),
    ],
)
async def test_a_question_finds_its_document(embeddings: Any, question: str, expected: str) -> None:
    documents = await embeddings.embed_batch(list(DOCUMENTS.values()))
    asked = await embeddings.embed(question)
    assert list(DOCUMENTS)[int((documents.vectors @ asked.vector).argmax())] == expected


async def test_it_is_a_bag_of_words(embeddings: Any) -> None:
    response = await embeddings.embed_batch(["dog bites man", "man bites dog"])
    assert float(response.vectors[0] @ response.vectors[1]) == pytest.approx(1.0, abs=1e-6)


async def test_the_vectors_are_the_packages_own(embeddings: Any) -> None:
    import wordllama

    with_package = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    texts = [
        *DOCUMENTS.values(),
        "one",
        "two two two",
        "<s> special </s>",
        "日本語のテキスト",
        "\x00control\x07",
        "long text " * 999,
    ]
    expected = with_package.embed(texts, norm=True)
    response = await embeddings.embed_batch(texts)
    np.testing.assert_allclose(response.vectors[:, :256], expected, atol=1e-5)
    assert not response.vectors[:, 256:].any()
    tokens = sum(sum(one.attention_mask) for one in with_package.tokenize(texts))
    assert response.usage.input_tokens == tokens


async def test_the_loop_stays_free_during_a_large_batch(embeddings: Any) -> None:
    await embeddings.embed("loaded")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    response = await embeddings.embed_batch([f"text {number} about something or other" * 3 for number in range(3000)])
    counting.cancel()
    assert response.vectors.shape == (3000, 1024)
    assert turns > 100


async def test_several_calls_at_once_give_what_one_gives(embeddings: Any) -> None:
    texts = [f"document {number} says {number * 7}" for number in range(40)]
    together = await asyncio.gather(*(embeddings.embed(text) for text in texts))
    batch = await embeddings.embed_batch(texts)
    np.testing.assert_allclose(np.stack([one.vector for one in together]), batch.vectors, atol=1e-6)


async def test_a_wrongly_declared_width_is_named(make_entry: Any, make_environment: Any, make_seat: Any) -> None:
    entry = make_entry("wordllama", dimensions=512)
    seat = make_seat(entry)
    with pytest.raises(MalformedResponseError, match="256 dimensions where the catalog entry declares 512") as caught:
        await WordLlamaEmbeddingsClient(entry, make_environment()).bound(seat.binding, seat).embed("text")
    assert not caught.value.retryable
    assert [record.outcome for record in seat.records] == ["bad_vector"]
    assert seat.records[0].usage.input_tokens == 1


async def test_the_root_logger_stays_the_applications(embeddings: Any) -> None:
    before = (list(logging.getLogger().handlers), logging.getLogger().level)
    await embeddings.embed("text")
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == before


def test_importing_the_packages_loads_neither_numpy_nor_a_model() -> None:
    code = (
        "import sys, logging, interlock.embeddings, interlock.decisions;"
        "heavy = {'numpy', 'wordllama', 'sparrow_decider', 'httpx2', 'sqlalchemy'} & set(sys.modules);"
        "print(sorted(heavy));"
        "from interlock.embeddings import AbstractEmbeddingsClient, VectorError;"
        "from interlock.embeddings.providers import wordllama as provider; provider._load();"
        "print(logging.getLogger().handlers, logging.getLogger().level)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["[]", "[] 30"]
