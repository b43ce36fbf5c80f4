"""How an SQLite file is searched: three ways, one answer; and what is held in memory keeps up with the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from search.places import Place, brute_force, some, unit

from interlock.errors import StoreError
from interlock.runtime.search import open_collection, scan, sqlite as sqlite_store
from interlock.runtime.search.documents import hits_of, rows_of
from interlock.runtime.search.scan import HeldVectors, highest, scan_in_steps
from interlock.runtime.search.sqlite import SqliteCollection

OF_A_ROW = 8  # bytes beside its numbers


async def opened(file: Path, **options: Any) -> SqliteCollection:
    collection = await open_collection(f"sqlite:///{file}", **options)
    assert isinstance(collection, SqliteCollection)
    return collection


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0]), max_size=2_000), st.integers(1, 40))
def test_the_highest_are_those_of_a_sort(values: list[float], count: int) -> None:
    scores = np.array(values, dtype=np.float32)
    found = highest(scores, count)
    assert len(set(found.tolist())) == min(count, len(values))
    assert sorted(values, reverse=True)[:count] == scores[found].tolist()


def test_the_highest_are_found_where_the_sample_has_them_all() -> None:
    """Each sixteenth score is looked at first."""
    scores = np.full(4_000, -1.0)
    scores[::16] = np.linspace(0.9, 0.1, 250)
    assert highest(scores, 10).tolist() == list(range(0, 160, 16))
    assert highest(np.roll(scores, 1), 10).tolist() == list(range(1, 161, 16))


@settings(max_examples=30)
@given(st.lists(st.integers(1, 60), max_size=8), st.integers(0, 1_000))
def test_steps_and_memory_find_what_brute_force_finds(sizes: list[int], seed: int) -> None:
    rng, key = np.random.default_rng(seed), 1
    parts = []
    for size in sizes:
        parts.append((np.arange(key, key + size, dtype=np.int64), unit(rng.standard_normal((size, 12)))))
        key += size + int(rng.integers(0, 3))
    keys = [int(one) for some_keys, _ in parts for one in some_keys]
    vectors = np.concatenate([np.zeros((0, 12), np.float32), *(part for _, part in parts)])
    question = unit(rng.standard_normal(12))
    wanted = [keys[index] for index, _ in brute_force(vectors, question, 5)]
    assert scan_in_steps(parts, question, 5)[:5] == wanted
    held = HeldVectors()
    for part in parts:
        assert held.add([part], most=10_000_000)
    assert set(wanted) <= set(held.candidates(question, 5))
    gone = set(wanted[::2])
    held.keep_only([one for one in keys if one not in gone])
    assert held.dead == len(gone)
    left = held.candidates(question, 20)
    assert not gone & set(left)
    assert len(left) == len(set(left)) >= min(20, len(keys) - len(gone))


def test_of_equal_scores_the_smaller_id_comes_first() -> None:
    vector = unit(np.ones(4))
    found = [(id, "text", "{}", vector) for id in ("b", "c", "a")]
    assert [hit.id for hit in hits_of(found, vector, 2)] == ["a", "b"]


@pytest.mark.parametrize("length", [1.0005, 0.9995, 1.0 + 1e-5])
def test_a_length_that_is_nearly_1_becomes_1(length: float) -> None:
    documents, vectors = some(3, width=12)
    (_, row, _) = rows_of(documents, vectors * np.array([[1.0], [length], [1.0]], dtype=np.float32))
    assert abs(np.linalg.norm(row.vector.astype(np.float64)) - 1.0) < 5e-7


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_that_is_none_is_damage_and_no_score(bad: float) -> None:
    vectors = some(5, width=12)[1].copy()
    vectors[3, 2] = bad
    question = unit(np.ones(12))
    with pytest.raises(StoreError, match="damaged"):
        scan_in_steps([(np.arange(5), vectors)], question, 2)
    with pytest.raises(StoreError, match="damaged"):
        HeldVectors().add([(np.arange(5), vectors)], most=10**6)


def test_what_has_gone_keeps_nothing_out_that_is_there() -> None:
    question, vectors = unit(np.ones(12)), some(40, width=12)[1]
    order = [index for index, _ in brute_force(vectors, question, 40)]
    held = HeldVectors()
    assert held.add([(np.arange(30), vectors[order[:30]])], most=10**6)
    held.keep_only(range(20, 30))
    assert held.add([(np.arange(30, 40), vectors[order[30:]])], most=10**6)
    assert set(range(20, 25)) <= set(held.candidates(question, 5)) <= set(range(20, 40))


def test_an_older_numpy_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    _, vectors = some(300, width=100)
    new = scan.dots(vectors, vectors[0])
    monkeypatch.setattr(scan, "_VECDOT", False)
    assert scan.dots(vectors, vectors[0]) == pytest.approx(new, abs=1e-6)


def test_columns_that_are_zero_cost_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BLOCK_ROWS", 600)
    narrow = np.zeros((1_500, 1_024), dtype=np.float32)
    narrow[:, :64] = some(1_500, width=64)[1]
    read = [(np.arange(at + 1, at + 101, dtype=np.int64), narrow[at : at + 100]) for at in range(0, 1_500, 100)]
    held = HeldVectors()
    assert held.add(read, most=10**9)
    assert held.size == 1_500 * (64 + OF_A_ROW)
    wide = unit(np.ones((1, 1_024)))
    assert held.add([(np.array([1_501]), wide)], most=10**9)
    assert held.candidates(unit(np.ones(1_024)), 1) == [1_501]
    assert 1_235 in held.candidates(narrow[1_234], 1)


async def test_what_does_not_fit_into_memory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BLOCK_ROWS", 600)
    documents, vectors = some(1_500, width=1_000)
    tried, add = [], HeldVectors.add
    monkeypatch.setattr(HeldVectors, "add", lambda *given, **named: tried.append(1) or add(*given, **named))
    async with await opened(tmp_path / "docs.db", hold_mb=1) as collection:  # 1.5 MB in bytes
        await collection.add(documents, vectors, model="m")
        for at in (3, 1_400):
            assert (await collection.search(vectors[at], k=1))[0].id == f"d{at}"
        assert collection.held_bytes == 0
        await collection.delete([f"d{number}" for number in range(1_000)])
        assert (await collection.search(vectors[1_400], k=1))[0].id == "d1400"
        assert len(tried) == 1
    async with await opened(tmp_path / "docs.db", hold_mb=1) as collection:  # and what is left does
        assert (await collection.search(vectors[1_400], k=1))[0].id == "d1400"
        assert collection.held_bytes == 500 * (1_000 + OF_A_ROW)


async def test_what_is_held_is_read_once_and_then_only_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    steps = scan.steps

    def counted(connection: Any, table: str, width: int, since: int = 0) -> Any:
        for keys, rows in steps(connection, table, width, since):
            read.extend(keys.tolist())
            yield keys, rows

    monkeypatch.setattr(sqlite_store, "steps", counted)
    documents, vectors = some(50)
    async with await opened(tmp_path / "docs.db") as collection:
        await collection.add(documents[:40], vectors[:40], model="m")
        await collection.search(vectors[0])
        await collection.search(vectors[1])
        assert len(read) == 40
        await collection.add(documents[40:], vectors[40:], model="m")
        await collection.delete(["d1"])
        assert (await collection.search(vectors[45], k=1))[0].id == "d45"
        assert len(read) == 50
        await collection.delete([f"d{number}" for number in range(30)])
        await collection.search(vectors[1])
        assert {hit.id for hit in await collection.search(vectors[1], k=50)} == {f"d{at}" for at in range(30, 50)}
        assert len(read) == 70  # more than half of what was held had gone, so the rest was read anew


@pytest.mark.parametrize("place", ["held", "read", "sqlite-vec"], indirect=True)
async def test_of_very_many_that_are_nearly_the_same_the_nearest_are_found(place: Place) -> None:
    """Nearer to each other than float32 can tell."""
    rng = np.random.default_rng(3)
    vectors = unit(rng.standard_normal((1, 64)) + 1e-6 * rng.standard_normal((1_000, 64)))
    async with await place.open() as collection:
        await collection.add(some(1_000)[0], vectors, model="m")
        hits = await collection.search(vectors[77], k=5)
    asked = vectors[77].astype(np.float64) / np.linalg.norm(vectors[77].astype(np.float64))
    wanted = [f"d{index}" for index, _ in brute_force(vectors, asked.astype(np.float32), 5)]
    assert [hit.id for hit in hits] == wanted


@pytest.mark.parametrize("place", ["held", "read", "sqlite-vec"], indirect=True)
async def test_a_length_that_is_nearly_one_does_not_bring_a_document_nearer(place: Place) -> None:
    question = unit(np.eye(64)[0] + np.eye(64)[1])
    near, nearer = unit(question + 0.03 * np.eye(64)[2]), unit(question + 0.02 * np.eye(64)[2])
    others = unit(np.random.default_rng(0).standard_normal((100, 64)))
    vectors = np.concatenate(([near * np.float32(1.0009), nearer * np.float32(0.9991)], others))
    async with await place.open() as collection:
        await collection.add(some(102)[0], vectors, model="m")
        hits = await collection.search(question, k=2)
    assert [hit.id for hit in hits] == ["d1", "d0"]
    assert hits[0].score == pytest.approx(float(question.astype(np.float64) @ nearer), abs=1e-6)


@pytest.mark.usefixtures("with_extension")
async def test_sqlite_vec_searches_where_it_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    with_extension = sqlite_store.scan_with_extension

    def noted(connection: Any, table: str, question: Any, count: int) -> list[int]:
        used.append(table)
        return with_extension(connection, table, question, count)

    monkeypatch.setattr(sqlite_store, "scan_with_extension", noted)
    documents, vectors = some(100)
    async with await opened(tmp_path / "docs.db", hold_mb=0) as collection:
        await collection.add(documents, vectors, model="m")
        assert collection.has_extension
        hits = await collection.search(vectors[9], k=5)
    assert [hit.id for hit in hits] == [f"d{index}" for index, _ in brute_force(vectors, vectors[9], 5)]
    assert used == ["interlock_vectors_1"]


async def test_a_file_goes_from_where_sqlite_vec_loads_to_where_it_does_not(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    documents, vectors = some(40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_store.tables, "load_extension", lambda connection: False)
        async with await opened(tmp_path / "docs.db", hold_mb=0) as collection:
            await collection.add(documents[:20], vectors[:20], model="m")
            assert not collection.has_extension
    request.getfixturevalue("with_extension")
    async with await opened(tmp_path / "docs.db", hold_mb=0) as collection:
        assert collection.has_extension
        await collection.add(documents[20:], vectors[20:], model="m")
        there = await collection.search(vectors[25], k=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_store.tables, "load_extension", lambda connection: False)
        async with await opened(tmp_path / "docs.db", hold_mb=0) as collection:
            assert await collection.search(vectors[25], k=8) == there
