"""What is stored is found: on labelled pairs, as well as brute force finds it (SQLite), or nearly (HNSW)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from search.pairs import pairs
from search.places import Float32, Place

from interlock import EmbeddingPurpose, Runtime, RuntimeSettings
from interlock.runtime.search import Document

K = 10
ASKED = 120  # questions
ASKED_OF_THE_FILE = 20  # where each search reads all of it


@dataclass(frozen=True)
class Corpus:
    documents: list[Document]
    vectors: Float32  # of the documents, in their order
    questions: Float32
    wanted: list[str]  # the id that each question is about

    def nearest(self) -> list[set[str]]:
        """By brute force, of each question."""
        scores = self.questions.astype(np.float64) @ self.vectors.astype(np.float64).T
        return [{self.documents[i].id for i in np.argsort(-row, kind="stable")[:K]} for row in scores]

    def recall(self, found: Sequence[set[str]]) -> float:
        """How many of the questions find what they are about among the ten."""
        return sum(id in ids for id, ids in zip(self.wanted, found, strict=False)) / len(found)


@pytest.fixture(scope="module")
def corpus() -> Any:
    import asyncio

    return asyncio.run(_read())


async def _read() -> Corpus:
    read = pairs()
    documents = [Document(id=pair.name, text=pair.answer) for pair in read]
    asking = [pair for pair in read if pair.question is not None]
    asking = asking[:: max(1, len(asking) // ASKED)]
    async with Runtime(RuntimeSettings(store=None)) as runtime:
        client = runtime.embeddings()
        vectors = (await client.embed_batch([one.text for one in documents])).vectors
        asked = [str(pair.question) for pair in asking]
        questions = (await client.embed_batch(asked, EmbeddingPurpose.QUERY)).vectors
    return Corpus(documents, vectors, questions, [pair.name for pair in asking])


def test_a_question_finds_what_it_is_about(corpus: Corpus) -> None:
    assert len(corpus.documents) > 3_000
    assert corpus.recall(corpus.nearest()) > 0.25  # by chance it would be 0.003


async def test_recall_on_labelled_pairs_is_that_of_brute_force(place: Place, corpus: Corpus) -> None:
    """Equal for SQLite; for HNSW at least 0.95 of it, and at least 0.95 of the very same neighbours."""
    async with await place.open() as collection:
        await collection.add(corpus.documents, corpus.vectors, model="wordllama")
        await collection.index()
        asked = corpus.questions[: ASKED_OF_THE_FILE if place.kind in ("read", "sqlite-vec") else None]
        found = [{hit.id for hit in await collection.search(question, k=K)} for question in asked]
        indexed = await uses_index(collection, corpus.questions[0]) if place.kind == "postgres" else None
    nearest = corpus.nearest()[: len(asked)]
    same = sum(len(one & other) for one, other in zip(found, nearest, strict=True)) / (K * len(nearest))
    best = corpus.recall(nearest)
    if place.kind == "postgres":
        assert indexed
        assert corpus.recall(found) >= 0.95 * best
        assert same >= 0.95
    else:
        assert corpus.recall(found) == best
        assert same == 1.0


async def uses_index(collection: Any, question: Float32) -> bool:
    """Whether what a search asks of Postgres is answered by the HNSW index."""
    async with collection._transaction() as connection:
        plan = await connection.fetch(
            "EXPLAIN SELECT id FROM interlock_documents_1 ORDER BY embedding <#> $1 LIMIT 10", question
        )
    return any("interlock_documents_1_hnsw" in row[0] for row in plan)
