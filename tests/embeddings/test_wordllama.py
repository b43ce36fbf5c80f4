"""The local model itself: right vectors, found texts, an event loop that stays free."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlock.embeddings.providers import wordllama as provider
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


async def test_every_text_of_a_large_request_is_counted(embeddings: Any) -> None:
    """It is embedded 512 at a time."""
    one = await embeddings.embed("the same words again")
    many = await embeddings.embed_batch(["the same words again"] * 1_100)
    assert many.usage.input_tokens == 1_100 * one.usage.input_tokens
    assert np.allclose(many.vectors, one.vector, atol=1e-6)


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


class Watched:
    """The model, and in which thread it was asked for how many texts."""

    name = "watched"

    def __init__(self) -> None:
        self.model, self.asked = provider._load(), list[tuple[threading.Thread, int]]()

    def embed(self, texts: list[str]) -> Any:
        self.asked.append((threading.current_thread(), len(texts)))
        return self.model.embed(texts)


async def test_a_large_batch_leaves_the_event_loop_in_steps(embeddings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    monkeypatch.setattr(provider, "_LOADED", [watched])
    texts = [f"text {number} about something or other" for number in range(1200)]
    response = await embeddings.embed_batch(texts)
    assert [count for _, count in watched.asked] == [512, 512, 176]
    assert threading.main_thread() not in {thread for thread, _ in watched.asked}
    await embeddings.embed(texts[600])
    assert watched.asked[-1] == (threading.main_thread(), 1)  # a hop to a thread would cost more than the work
    np.testing.assert_allclose(response.vectors[600], (await embeddings.embed(texts[600])).vector, atol=1e-6)


async def test_a_cancelled_large_batch_ends_between_two_steps(embeddings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    monkeypatch.setattr(provider, "_LOADED", [watched])
    started, go_on = threading.Event(), threading.Event()
    ask = watched.embed

    def held(texts: list[str]) -> Any:
        started.set()
        assert go_on.wait(10)
        return ask(texts)

    monkeypatch.setattr(watched, "embed", held)
    task = asyncio.create_task(embeddings.embed_batch(["some words of a text"] * 2000))
    assert await asyncio.to_thread(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert len(watched.asked) == 1


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


def test_what_others_log_while_it_is_imported_stays_off_the_screen() -> None:
    """Importing wordllama calls logging.basicConfig(level=INFO); a client of another thread logs each request."""
    code = (
        "import logging, sys, threading; from interlock.embeddings.providers import wordllama as provider;"
        "log, over = logging.getLogger('httpx2'), threading.Event();"
        "log.setLevel(logging.INFO);"
        "write = lambda: [log.info('HTTP Request') for _ in iter(lambda: over.wait(0.001), True)];"
        "other = threading.Thread(target=write); other.start(); provider._load(); over.set(); other.join()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


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
