"""What cannot be stored, named or shown is refused before it costs anything, in one sentence."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from search.places import Place, some
from search.test_embedding import settings  # noqa: F401
from typer.testing import CliRunner

from interlock import ConfigurationError, Runtime, StoreError
from interlock.runtime.cli.app import app
from interlock.runtime.cli.embed import EmbedOptions
from interlock.runtime.search import Document, embed_documents, open_collection, sqlite as sqlite_store


async def test_fields_that_are_no_json_are_refused_before_the_vector_is_paid_for(
    settings: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    bad = [
        Document(id=f"bad{index}", text="Not sent.", fields={"of": value})
        for index, value in enumerate((float("inf"), float("nan"), {1, 2}, deep))
    ]
    async with (
        Runtime(settings()) as runtime,
        await open_collection(f"sqlite:///{tmp_path}/docs.db") as notes,
    ):
        totals = await embed_documents(runtime, notes, [bad[0], Document(id="good", text="Sent."), *bad[1:]])
        assert [one.document.id for one in totals.refused] == ["bad0", "bad1", "bad2", "bad3"]
        assert all("cannot be written as JSON" in one.reason for one in totals.refused)
        assert (totals.stored, [one.id for one in await notes.get(["bad0", "good"])]) == (1, ["good"])


@pytest.mark.parametrize("name", ["", "a\udcff", "a\0b", "n" * 201, 5])
async def test_a_name_that_no_database_takes_is_refused(tmp_path: Path, name: Any) -> None:
    with pytest.raises(ConfigurationError, match="a collection has a name"):
        await open_collection(f"sqlite:///{tmp_path}/docs.db", name)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:///docs\udcff.db", "cannot be read"),
        ("sqlite:///docs.db?mode=ro", "has options, and a file takes none"),
        ("postgresql://127.0.0.1:1/none?password=hunter2", "cannot be opened"),
    ],
)
async def test_a_url_that_cannot_be_used_is_one_sentence_without_a_password(url: str, told: str) -> None:
    with pytest.raises(StoreError, match=told) as refused:
        await open_collection(url)
    assert "hunter2" not in str(refused.value)


async def test_more_than_a_database_counts_finds_all(place: Place) -> None:
    documents, vectors = some(5)
    async with await place.open() as collection:
        await collection.add(documents, vectors, model="words")
        assert len(await collection.search(vectors[0], k=10**30)) == 5


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_what_is_paid_for_is_not_put_where_it_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs.jsonl").write_text(json.dumps({"text": "Any."}), encoding="utf-8")
    result = CliRunner().invoke(app, ["embed", "--input", "docs.jsonl", "--store", url])
    assert (result.exit_code, "name a file" in result.stderr) == (2, True)


def test_the_command_that_goes_on_shows_no_password() -> None:
    secret = "postgresql://me:hunter2@there/docs"
    words = EmbedOptions(store=secret, records=secret, input=Path("docs.jsonl")).again()
    assert words.count("postgresql://me:***@there/docs") == 2
    assert "hunter2" not in words


@pytest.mark.parametrize("hold_mb", [0, 64])
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE interlock_vectors_1 SET vector = x'0011' WHERE key = 2",
        "UPDATE interlock_vectors_1 SET vector = x''",
        "UPDATE interlock_vectors_1 SET vector = 'words'",
        "UPDATE interlock_documents_1 SET fields = '{'",
        "UPDATE interlock_documents_1 SET id = x'ff' WHERE key = 1",
        "DROP TABLE interlock_documents_1",
    ],
)
async def test_a_damaged_store_is_an_error_of_the_store(tmp_path: Path, damage: str, hold_mb: int) -> None:
    documents, vectors = some(5)
    async with await open_collection(f"sqlite:///{tmp_path}/docs.db") as collection:
        await collection.add(documents, vectors, model="words")
    with sqlite3.connect(tmp_path / "docs.db") as connection:
        connection.execute(damage)
    connection.close()
    async with await open_collection(f"sqlite:///{tmp_path}/docs.db", hold_mb=hold_mb) as collection:
        with pytest.raises(StoreError):
            await collection.search(vectors[0])


async def test_a_file_that_may_not_be_written_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write everything, so what a read-only disk answers is brought about: nothing can be made beside it."""
    file = tmp_path / "docs.db"
    documents, vectors = some(5)
    async with await open_collection(f"sqlite:///{file}") as collection:
        await collection.add(documents, vectors, model="m")
    monkeypatch.setattr(sqlite_store, "_may_be_written", lambda path: False)
    (tmp_path / "docs.db-wal").mkdir()
    async with await open_collection(f"sqlite:///{file}", create=False) as collection:
        assert (await collection.search(vectors[3], k=1))[0].id == "d3"
        with pytest.raises(StoreError, match="readonly"):
            await collection.add(documents, vectors, model="m")
    (tmp_path / "docs.db-wal").rmdir()
    (tmp_path / "docs.db-wal").write_bytes(b"what has not been brought into the file")
    file.write_bytes(b"and so it cannot be read")
    with pytest.raises(StoreError, match=r"Its log .*docs\.db-wal can only be read where"):
        await open_collection(f"sqlite:///{file}", create=False)
