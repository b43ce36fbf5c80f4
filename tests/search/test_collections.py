"""What every collection does, whatever keeps it."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from search.places import Place, brute_force, some, unit

from interlock.errors import StoreError
from interlock.runtime.search import CollectionModelError, Document, VectorModel


async def test_what_is_stored_is_found_with_its_text_and_fields(place: Place) -> None:
    documents, vectors = some(60)
    async with await place.open() as collection:
        await collection.add(documents, vectors, model="m")
    async with await place.open(create=False) as collection:  # as another process
        hits = await collection.search(vectors[7], k=3)
        info = await collection.info()
    wanted = brute_force(vectors, vectors[7], 3)
    assert [hit.id for hit in hits] == [f"d{index}" for index, _ in wanted]
    assert [hit.score for hit in hits] == pytest.approx([score for _, score in wanted], abs=1e-12)
    assert (hits[0].text, dict(hits[0].fields)) == ("text 7", {"number": 7})
    assert info is not None
    assert (info.count, info.width, info.model.identity) == (60, 16, "m")


async def test_fewer_documents_than_wanted_are_all_found(place: Place) -> None:
    documents, vectors = some(5)
    async with await place.open() as collection:
        await collection.add(documents, vectors, model="m")
        assert len(await collection.search(vectors[0], k=50)) == 5
        assert len(await collection.search(vectors[0], k=5_000)) == 5


async def test_a_question_need_not_be_of_length_one(place: Place) -> None:
    documents, vectors = some(5)
    async with await place.open() as collection:
        await collection.add(documents, vectors, model="m")
        assert (await collection.search(vectors[2] * 7, k=1))[0].score == pytest.approx(1.0, abs=1e-6)


async def test_a_document_stored_again_takes_the_place_of_the_first(place: Place) -> None:
    documents, vectors = some(20)
    async with await place.open() as collection:
        await collection.add(documents, vectors, model="m")
        await collection.search(vectors[0])  # whoever holds vectors in memory holds the old one now
        again = Document(id="d3", text="another text", fields={"number": 300})
        await collection.add([again], -vectors[3:4], model="m")
        hits = await collection.search(vectors[3], k=20)
        info = await collection.info()
    assert [hit.id for hit in hits].count("d3") == 1
    assert (hits[-1].id, hits[-1].text, dict(hits[-1].fields)) == ("d3", "another text", {"number": 300})
    assert info is not None
    assert info.count == 20


async def test_of_one_id_given_twice_the_last_stays(place: Place) -> None:
    documents, vectors = some(2)
    twice = [documents[0], Document(id="d0", text="the last")]
    async with await place.open() as collection:
        await collection.add(twice, vectors, model="m")
        assert [one.text for one in await collection.get(["d0"])] == ["the last"]
        assert (await collection.search(vectors[1], k=2))[0].score == pytest.approx(1.0, abs=1e-6)


async def test_what_is_deleted_is_gone(place: Place) -> None:
    documents, vectors = some(30)
    async with await place.open() as collection:
        await collection.add(documents, vectors, model="m")
        await collection.search(vectors[0])
        assert await collection.delete(["d4", "d5", "never there"]) == 2
        found = {hit.id for hit in await collection.search(vectors[4], k=30)}
        assert found == {one.id for one in documents} - {"d4", "d5"}
        assert await collection.delete([one.id for one in documents]) == 28
        assert await collection.search(vectors[4]) == ()


async def test_another_openers_changes_are_seen(place: Place) -> None:
    documents, vectors = some(40)
    async with await place.open() as reader, await place.open() as writer:
        await writer.add(documents[:20], vectors[:20], model="m")
        assert len(await reader.search(vectors[0], k=40)) == 20
        await writer.add(documents[20:], vectors[20:], model="m")
        assert (await reader.search(vectors[30], k=1))[0].id == "d30"
        await writer.delete(["d30", "d1"])
        found = {hit.id for hit in await reader.search(vectors[30], k=40)}
        assert found == {one.id for one in documents} - {"d30", "d1"}


async def test_stored_and_unchanged_is_told_by_the_text(place: Place) -> None:
    documents, vectors = some(4)
    async with await place.open() as collection:
        assert await collection.unchanged(documents) == frozenset()
        await collection.add(documents, vectors, model="m")
        asked = [documents[0], Document(id="d1", text="changed"), Document(id="new", text="text 2")]
        assert await collection.unchanged(asked) == {"d0"}


async def test_new_fields_of_an_unchanged_text_are_taken_over(place: Place) -> None:
    documents, vectors = some(2)
    async with await place.open() as collection:
        await collection.add(documents, vectors, model="m")
        tagged = Document(id="d0", text="text 0", fields={"tags": ["a", None], "deep": {"x": 1.5}})
        assert await collection.unchanged([tagged]) == {"d0"}
        assert dict((await collection.get(["d0"]))[0].fields) == {"tags": ["a", None], "deep": {"x": 1.5}}
        assert (await collection.search(vectors[0], k=1))[0].fields["tags"] == ["a", None]


ODD = ("a\x00b", "\ud800 alone", "\ufdd0fdd0 the mark", "a'b\"c;--", "ïd 🚂 \u2028", "\\u0000", " ")


async def test_b26_any_text_comes_back_as_it_was(place: Place) -> None:
    documents = [Document(id=f"{odd}!", text=odd, fields={odd: [odd]}) for odd in ODD]
    _, vectors = some(len(documents))
    async with await place.open() as collection:
        await collection.add(documents, vectors, model="m")
        assert await collection.unchanged(documents) == {one.id for one in documents}
        back = await collection.get([one.id for one in documents])
        hits = await collection.search(vectors[0], k=len(ODD))
        assert await collection.delete([one.id for one in documents]) == len(ODD)
    assert [(one.id, one.text, dict(one.fields)) for one in back] == [(f"{odd}!", odd, {odd: [odd]}) for odd in ODD]
    assert {hit.text for hit in hits} == set(ODD)


async def test_collections_of_one_store_are_apart(place: Place) -> None:
    documents, vectors = some(6)
    async with await place.open("one") as one, await place.open("two") as two:
        await one.add(documents[:3], vectors[:3], model="m")
        await two.add(documents[:2], unit(np.ones((2, 8))), model="another")
        assert len(await one.search(vectors[0])) == 3
        assert len(await two.search(np.ones(8))) == 2
        assert await one.delete(["d0"]) == 1
        assert len(await two.search(np.ones(8))) == 2


async def test_another_models_vectors_are_refused_with_both_names_and_the_way_out(place: Place) -> None:
    documents, vectors = some(3)
    small = VectorModel(identity="text-small", entry="small-direct")
    async with await place.open("notes") as collection:
        await collection.add(documents, vectors, model=small)
        await collection.add(documents, vectors, model=VectorModel(identity="text-small", entry="small-elsewhere"))
        with pytest.raises(CollectionModelError) as refused:
            await collection.add(documents, vectors, model="large")
        with pytest.raises(CollectionModelError, match="vectors of small-direct"):
            await collection.search(vectors[0], model="large")
        info = await collection.info()
    told = str(refused.value)
    assert "small-direct (text-small)" in told
    assert "`interlock embed --store " in told
    assert " --collection notes --re-embed --model large`" in told
    assert (refused.value.stored, refused.value.given.identity) == (small, "large")
    assert info is not None
    assert info.count == 3


async def test_vectors_of_another_width_are_refused(place: Place) -> None:
    documents, vectors = some(3)
    async with await place.open() as collection:
        await collection.add(documents, vectors, model="m")
        with pytest.raises(CollectionModelError, match="of width 16, and these are of width 8"):
            await collection.add(documents, unit(vectors[:, :8]), model="m")
        with pytest.raises(CollectionModelError, match="of width 16"):
            await collection.search(vectors[0][:8])


async def test_a_vector_that_is_no_direction_is_refused_and_nothing_is_stored(place: Place) -> None:
    documents, vectors = some(3)
    for bad in (np.nan, np.inf, 0.0, 2.0):
        broken = vectors.copy()
        broken[1] = broken[1] * bad
        async with await place.open() as collection:
            with pytest.raises(ValueError, match="vector of 'd1'"):
                await collection.add(documents, broken, model="m")
            assert await collection.info() is None
    async with await place.open() as collection:
        with pytest.raises(ValueError, match="3 documents need vectors"):
            await collection.add(documents, vectors[:2], model="m")
        await collection.add(documents, vectors, model="m")
        for question in (np.zeros(16), np.full(16, np.nan), vectors):
            with pytest.raises(ValueError, match="a question is one vector"):
                await collection.search(question)
        for k in (0, -1, 2.5, True):
            with pytest.raises(ValueError, match="k is how many"):
                await collection.search(vectors[0], k=k)  # type: ignore[arg-type]


async def test_a_batch_that_fails_leaves_nothing_of_itself(place: Place) -> None:
    documents, vectors = some(3)
    unwritable = Document(id="d9", text="text", fields={"when": object()})
    async with await place.open() as collection:
        await collection.add(documents[:1], vectors[:1], model="m")
        with pytest.raises(ValueError, match="fields of 'd9'"):
            await collection.add([documents[1], unwritable], vectors[1:], model="m")
        assert [hit.id for hit in await collection.search(vectors[0])] == ["d0"]


async def test_many_at_once_lose_nothing(place: Place) -> None:
    documents, vectors = some(200)
    async with await place.open() as one, await place.open() as two:
        parts = [list(range(start, start + 50)) for start in range(0, 200, 50)]
        writing = [
            store.add([documents[i] for i in part], vectors[part], model="m")
            for _ in range(5)
            for forward in parts
            for store, part in ((one, forward), (two, forward[::-1]))  # both write the same, from both ends
        ]
        searching = [two.delete(["never there"]) for _ in range(5)]
        await asyncio.gather(*writing, *searching)
        found = await one.search(vectors[0], k=400)
    assert sorted(hit.id for hit in found) == sorted(document.id for document in documents)


async def test_a_whole_collection_changes_its_model_in_one_step(place: Place) -> None:
    documents, vectors = some(10)
    _, others = some(10, width=8, seed=1)
    async with await place.open() as collection, await place.open() as reader:
        await collection.add(documents, vectors, model="old")
        await reader.search(vectors[0])
        await collection.begin_replacement(model="new", width=8)
        first = await collection.outdated(limit=6)
        await collection.add(first, others[[int(one.id[1:]) for one in first]], model="new", replacement=True)
        assert await collection.switch() == 4  # nothing is put in place that lacks something
        assert (await reader.search(vectors[3], k=1, model="old"))[0].id == "d3"

        await collection.begin_replacement(model="new", width=8)  # goes on with what was begun
        rest = await collection.outdated()
        assert {one.id for one in first} | {one.id for one in rest} == {one.id for one in documents}
        assert len(rest) == 4
        await collection.add(rest, others[[int(one.id[1:]) for one in rest]], model="new", replacement=True)
        assert await collection.switch() == 0

        hit = (await reader.search(others[3], k=1, model="new"))[0]
        assert (hit.id, hit.text, dict(hit.fields)) == ("d3", "text 3", {"number": 3})
        with pytest.raises(CollectionModelError):
            await reader.search(vectors[3], model="old")
        assert await collection.outdated() == ()


async def test_what_changes_while_a_collection_changes_its_model_is_not_lost(place: Place) -> None:
    documents, vectors = some(6)
    async with await place.open() as collection:
        await collection.add(documents, vectors, model="old")
        await collection.begin_replacement(model="new", width=16)
        await collection.add(documents, vectors, model="new", replacement=True)
        await collection.delete(["d0"])
        await collection.add([Document(id="d1", text="changed")], vectors[1:2], model="old")
        await collection.unchanged([Document(id="d2", text="text 2", fields={"late": True})])
        assert [one.text for one in await collection.outdated()] == ["changed"]
        assert await collection.switch() == 1
        await collection.add(await collection.outdated(), vectors[1:2], model="new", replacement=True)
        assert await collection.switch() == 0
        info = await collection.info()
        stored = {one.id: one for one in await collection.get([one.id for one in documents])}
    assert info is not None
    assert (info.model.identity, info.count) == ("new", 5)
    assert (stored["d1"].text, dict(stored["d2"].fields)) == ("changed", {"late": True})


async def test_a_change_to_a_third_model_drops_what_was_begun(place: Place) -> None:
    documents, vectors = some(4)
    async with await place.open() as collection:
        await collection.add(documents, vectors, model="old")
        await collection.begin_replacement(model="new", width=16)
        await collection.add(documents, vectors, model="new", replacement=True)
        await collection.begin_replacement(model="third", width=16)
        assert len(await collection.outdated()) == 4
        with pytest.raises(CollectionModelError):
            await collection.add(documents, vectors, model="new", replacement=True)


async def test_what_is_not_there_is_said(place: Place) -> None:
    async with await place.open("notes") as collection:
        documents, vectors = some(1)
        assert await collection.info() is None
        assert await collection.get(["d0"]) == ()
        assert await collection.delete(["d0"]) == 0
        with pytest.raises(StoreError, match="has no collection notes: embed something"):
            await collection.search(vectors[0])
        with pytest.raises(StoreError, match="has no collection notes that could be"):
            await collection.begin_replacement(model="m", width=16)
        with pytest.raises(StoreError, match="no replacement of the collection"):
            await collection.add(documents, vectors, model="m", replacement=True)
    with pytest.raises(StoreError, match="is closed"):
        await collection.search(vectors[0])


async def test_no_documents_are_no_collection(place: Place) -> None:
    async with await place.open() as collection:
        await collection.add([], np.zeros((0, 16)), model="m")
        assert await collection.info() is None


def test_a_document_has_an_id_and_a_text() -> None:
    for id, told in (
        ("", "not empty"),
        (None, "not empty"),
        ("i" * 2_001, "longer than"),
        ("\x00" * 400, "longer than"),
    ):
        with pytest.raises(ValueError, match=told):
            Document(id=id, text="text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="text of 'a' is int"):
        Document(id="a", text=5)  # type: ignore[arg-type]
    assert Document(id="i" * 2_000, text="text").fields == {}
