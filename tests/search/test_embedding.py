"""From documents to a collection and back, through a Runtime: what is paid for is stored, and nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from search.places import Place

from interlock import (
    EmbeddingPurpose,
    ModelResolutionError,
    Runtime,
    RuntimeSettings,
    SpendCapExceededError,
    StoreError,
)
from interlock.catalog import Catalog
from interlock.runtime.search import (
    CollectionModelError,
    Document,
    EmbedTotals,
    embed_again,
    embed_documents,
    embedding,
    open_collection,
    search_documents,
)

#: Three models of one provider: two names of one identity, another identity, and one that reads little.
CATALOG = """
embedding_width: {width}
models:
  - {{id: words, identity: bag, kind: embeddings, provider: wordllama, wire_model_id: l2, dimensions: 256,
      max_batch_items: 4, prices: {{input: 1.00, as_of: 2026-11-30, source: made up}}}}
  - {{id: words-elsewhere, identity: bag, kind: embeddings, provider: wordllama, wire_model_id: l2, dimensions: 256,
      prices: {{input: 0}}}}
  - {{id: others, identity: other, kind: embeddings, provider: wordllama, wire_model_id: l2, dimensions: 256,
      prices: {{input: 0}}}}
  - {{id: shortsighted, kind: embeddings, provider: wordllama, wire_model_id: l2, dimensions: 256, context_window: 8,
      prices: {{input: 0}}}}
pins: {{embeddings: {pin}}}
"""
TEXTS = [
    "Parse command line arguments.",
    "Compress a file with gzip.",
    "Send an electronic mail.",
    "The date of next Tuesday.",
    "Draw a random number.",
    "Open a network socket.",
    "Sort a list of names.",
]
DOCUMENTS = [Document(id=f"t{index}", text=text, fields={"at": index}) for index, text in enumerate(TEXTS)]


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    def make(pin: str = "words", width: int = 256, **more: Any) -> RuntimeSettings:
        file = tmp_path / f"catalog-{pin}-{width}.yaml"
        file.write_text(CATALOG.format(pin=pin, width=width), encoding="utf-8")
        return RuntimeSettings(**{"catalog": Catalog.load(file), "store": None, **more})

    return make


async def test_a_question_finds_what_was_embedded(database: Place, settings: Any) -> None:
    seen: list[int] = []
    async with Runtime(settings()) as runtime, await database.open() as collection:
        totals = await embed_documents(runtime, collection, DOCUMENTS, progress=lambda now: seen.append(now.stored))
        hits = await search_documents(runtime, collection, "How do I read a command line?", k=2)
        calls = await runtime.calls()
    assert (totals.stored, totals.unchanged, totals.refused) == (7, 0, [])
    assert seen == [4, 7]  # a batch is told once it is stored
    assert (hits[0].id, hits[0].text, dict(hits[0].fields)) == ("t0", TEXTS[0], {"at": 0})
    assert hits[0].score > hits[1].score
    assert len(calls) == 3  # two batches and the question: each a row like a chat call
    assert totals.tokens == sum(call.record.usage.input_tokens or 0 for call in calls[:2])
    assert sum(totals.cost.values()) == sum(call.record.cost for call in calls[:2] if call.record.cost is not None) > 0


async def test_a_question_is_embedded_as_one(database: Place, settings: Any) -> None:
    async with Runtime(settings()) as runtime, await database.open() as collection:
        await embed_documents(runtime, collection, DOCUMENTS[:1])
        await search_documents(runtime, collection, TEXTS[0])
        await runtime.embeddings().embed(TEXTS[0], EmbeddingPurpose.QUERY)
        stored, asked, again = [call.record.request_hash for call in await runtime.calls()]
    assert asked == again != stored  # the purpose is in what is hashed


async def test_what_is_stored_and_unchanged_is_not_paid_for_again(database: Place, settings: Any) -> None:
    async with Runtime(settings()) as runtime, await database.open() as collection:
        await embed_documents(runtime, collection, DOCUMENTS[:5])
        before = len(await runtime.calls())
        again = [*DOCUMENTS[:4], Document(id="t4", text="Draw a card."), *DOCUMENTS[5:]]
        totals = await embed_documents(runtime, collection, again)
        assert (totals.stored, totals.unchanged) == (3, 4)
        assert len(await runtime.calls()) == before + 1
        idle = await embed_documents(runtime, collection, again)
        assert (idle.stored, idle.unchanged, idle.tokens) == (0, 7, 0)
        assert len(await runtime.calls()) == before + 1


async def test_what_breaks_off_has_stored_what_it_told(database: Place, settings: Any) -> None:
    class Broken(Exception):
        pass

    def breaks_off() -> Iterator[Document]:
        yield from DOCUMENTS[:5]
        raise Broken

    told = EmbedTotals()

    def progress(now: EmbedTotals) -> None:
        nonlocal told
        told = now

    async with Runtime(settings()) as runtime, await database.open() as collection:
        with pytest.raises(Broken):
            await embed_documents(runtime, collection, breaks_off(), progress=progress, limit=1)
        info = await collection.info()
        assert told.stored == (0 if info is None else info.count)
        rest = await embed_documents(runtime, collection, DOCUMENTS)
        assert rest.stored + rest.unchanged == 7
        assert rest.unchanged == told.stored


async def test_it_stops_when_it_is_asked_to_and_keeps_what_was_sent(database: Place, settings: Any) -> None:
    taken: list[str] = []

    async def endless() -> AsyncIterator[Document]:
        number = 0
        while True:
            taken.append(f"n{number}")
            yield Document(id=f"n{number}", text=f"Number {number}.")
            number += 1

    async with Runtime(settings()) as runtime, await database.open() as collection:
        totals = await embed_documents(runtime, collection, endless(), stopping=lambda: len(taken) > 1_500)
        info = await collection.info()
    assert info is not None
    assert info.count == totals.stored == 1_500


async def test_another_model_is_refused_before_anything_is_sent(database: Place, settings: Any) -> None:
    async with Runtime(settings()) as runtime, await database.open() as collection:
        await embed_documents(runtime, collection, DOCUMENTS)
        before = len(await runtime.calls())
        with pytest.raises(CollectionModelError, match=r"vectors of words \(bag\), and others \(other\)") as refused:
            await embed_documents(runtime, collection, DOCUMENTS, model="others")
        assert "--re-embed --model others`" in str(refused.value)
        same = await embed_documents(runtime, collection, DOCUMENTS, model="words-elsewhere")  # one identity
        assert same.unchanged == 7
        assert len(await runtime.calls()) == before


async def test_a_question_is_asked_with_the_model_of_the_collection(database: Place, settings: Any) -> None:
    async with Runtime(settings("others")) as runtime, await database.open() as collection:
        await embed_documents(runtime, collection, DOCUMENTS)
    async with Runtime(settings("words")) as runtime, await database.open() as collection:  # the pin has changed
        assert (await search_documents(runtime, collection, TEXTS[2], k=1))[0].id == "t2"
        assert [call.record.model for call in await runtime.calls()] == ["others"]


async def test_a_model_that_the_catalog_has_not_is_named(database: Place, settings: Any, tmp_path: Path) -> None:
    async with Runtime(settings()) as runtime, await database.open() as collection:
        await collection.add(DOCUMENTS[:1], [[1.0, *[0.0] * 255]], model="gone")  # type: ignore[arg-type]
        with pytest.raises(ModelResolutionError, match=r"vectors of gone \(gone\).*--re-embed"):
            await search_documents(runtime, collection, "What?")
    async with Runtime(settings()) as runtime, await database.open("empty") as collection:
        with pytest.raises(StoreError, match="has no collection empty"):
            await search_documents(runtime, collection, "What?")


async def test_the_width_of_the_catalog_is_the_width_of_the_collection(database: Place, settings: Any) -> None:
    async with Runtime(settings(width=64)) as runtime, await database.open() as collection:
        await embed_documents(runtime, collection, DOCUMENTS)
        info = await collection.info()
        assert info is not None
        assert info.width == 64
    async with Runtime(settings(width=1_024)) as runtime, await database.open() as collection:
        for asked in (embed_documents(runtime, collection, DOCUMENTS), search_documents(runtime, collection, "What?")):
            with pytest.raises(CollectionModelError, match=r"width 64.*embedding_width: 64 in the catalog"):
                await asked


async def test_all_of_it_is_embedded_again_by_another_model(database: Place, settings: Any) -> None:
    async with Runtime(settings()) as runtime, await database.open() as collection:
        await embed_documents(runtime, collection, DOCUMENTS)
    async with Runtime(settings("others", width=128)) as runtime, await database.open() as collection:
        stopped = await embed_again(runtime, collection, stopping=lambda: True)
        assert stopped.stored == 0
        info = await collection.info()
        assert info is not None
        assert info.model.entry == "words"  # what is found is still the old
        totals = await embed_again(runtime, collection)
        assert totals.stored == 7
        info = await collection.info()
        assert info is not None
        assert (info.model.entry, info.width, info.count) == ("others", 128, 7)
        assert (await search_documents(runtime, collection, TEXTS[5], k=1))[0].id == "t5"


async def test_what_two_embed_again_at_once_is_done_when_one_has_done_it(
    database: Place, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Runtime(settings()) as runtime, await database.open() as one, await database.open() as other:
        await embed_documents(runtime, one, DOCUMENTS)
        add = one.add

        async def overtaken(*given: Any, **named: Any) -> None:
            monkeypatch.undo()
            assert (await embed_again(runtime, other, model="others")).stored == 7
            await add(*given, **named)

        monkeypatch.setattr(one, "add", overtaken)
        totals = await embed_again(runtime, one, model="others")
        assert (totals.stored, totals.left) == (0, 0)
        info = await one.info()
        assert info is not None
        assert (info.model.entry, info.count) == ("others", 7)
        with pytest.raises(StoreError, match=r"no replacement of the collection documents of .* is under way"):
            await one.add(DOCUMENTS[:1], [[1.0, *[0.0] * 255]], model="others", replacement=True)  # type: ignore[arg-type]


async def test_a_text_the_new_model_refuses_keeps_the_old_vectors(database: Place, settings: Any) -> None:
    long = Document(id="long", text="A text of far too many words for somebody who reads no more than eight of them.")
    async with Runtime(settings()) as runtime, await database.open() as collection:
        await embed_documents(runtime, collection, [DOCUMENTS[0], long])
        with pytest.raises(
            StoreError, match="1 documents of documents have no vector by shortsighted, the first 'long'"
        ):
            await embed_again(runtime, collection, model="shortsighted")
        info = await collection.info()
        assert info is not None
        assert (info.model.entry, info.count) == ("words", 2)
        await collection.delete(["long"])
        totals = await embed_again(runtime, collection, model="shortsighted")
        assert totals.stored == 0  # the other one was done before
        info = await collection.info()
        assert info is not None
        assert (info.model.entry, info.count) == ("shortsighted", 1)


async def test_a_refused_document_is_named_and_stops_nothing(database: Place, settings: Any) -> None:
    long = Document(id="long", text="A text of far too many words for somebody who reads no more than eight of them.")
    blank = Document(id="blank", text="")
    async with Runtime(settings("shortsighted")) as runtime, await database.open() as collection:
        totals = await embed_documents(runtime, collection, [DOCUMENTS[0], long, blank, DOCUMENTS[1]])
        assert totals.stored == 2
        assert {one.document.id for one in totals.refused} == {"long", "blank"}
        assert all(one.reason for one in totals.refused)
        cut = await embed_documents(runtime, collection, [long], truncate=True)
        assert (cut.stored, cut.refused) == (1, [])


async def test_of_very_many_refused_documents_the_first_are_kept_and_all_are_counted(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "MOST_REFUSED", 2)
    blank = [Document(id=str(number), text="") for number in range(3)]
    strange = [Document(id=f"s{number}", text="said", fields={"set": {1}}) for number in range(2)]
    async with Runtime(settings()) as runtime, await open_collection(f"sqlite:///{tmp_path}/docs.db") as collection:
        totals = await embed_documents(runtime, collection, [*blank, *strange, DOCUMENTS[0]])
    assert (totals.stored, totals.refused_count, len(totals.refused)) == (1, 5, 2)


async def test_a_cap_stops_it_and_keeps_what_was_paid_for(database: Place, settings: Any) -> None:
    async with Runtime(settings(cost_cap="0.00003")) as runtime, await database.open() as collection:
        with pytest.raises(SpendCapExceededError):
            await embed_documents(runtime, collection, DOCUMENTS, limit=1)
        paid = [call for call in await runtime.calls() if call.record.cost]
        info = await collection.info()
    assert len(paid) == 1
    assert info is not None
    assert info.count == 4


async def test_the_place_of_a_store_shows_no_password() -> None:
    with pytest.raises(StoreError) as refused:
        await open_collection("postgresql://me:hunter2@127.0.0.1:1/none")
    assert "hunter2" not in str(refused.value)
    assert "me:***@127.0.0.1" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://there/docs", "of a kind this version cannot use"),
        ("docs.db", "cannot be read"),
        ("sqlite:////no/such/folder/docs.db", "folder /no/such/folder does not exist"),
    ],
)
async def test_a_store_that_cannot_be_opened_is_one_sentence(url: str, told: str) -> None:
    with pytest.raises(StoreError, match=told):
        await open_collection(url)


async def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("These are notes and no database. " * 100, encoding="utf-8")
    before = file.read_bytes()
    with pytest.raises(StoreError, match="cannot be opened"):
        await open_collection(f"sqlite:///{file}")
    assert file.read_bytes() == before


async def test_a_store_is_made_by_its_first_document(tmp_path: Path) -> None:
    file = tmp_path / "docs.db"
    async with await open_collection(f"sqlite:///{file}") as collection:
        assert await collection.info() is None
        assert await collection.unchanged(DOCUMENTS) == frozenset()
        assert not file.exists()
    with pytest.raises(StoreError, match="there is no store"):
        await open_collection(f"sqlite:///{file}", create=False)
