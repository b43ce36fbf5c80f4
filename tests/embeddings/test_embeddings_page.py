"""docs/embeddings.md: its snippets run and give what the page says, and its table of providers is the registry's."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlock import EmbeddingCall, EmbeddingPurpose, Runtime, RuntimeSettings
from interlock.catalog import Catalog
from interlock.catalog.usage import Usage
from interlock.embeddings import AbstractEmbeddingsClient, EmbeddingAnswer

from .conftest import WIRES

PAGE = (Path(__file__).parent.parent.parent / "docs" / "embeddings.md").read_text(encoding="utf-8")


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


async def run(code: str, **names: Any) -> dict[str, Any]:
    """The code inside a function, since it awaits; the names it leaves. `expression  # value` is looked at."""
    checked = re.sub(r"^( *)(\S.*?)  # (\[.*|\d.*)$", r"\1seen.append(((\2), '''\3'''))", code, flags=re.MULTILINE)
    names["seen"] = []
    body = textwrap.indent(f"{checked}\nreturn locals()", "    ")
    exec(f"async def snippet():\n{body}", names)
    return {**names, **await names["snippet"]()}


async def test_the_first_snippet_gives_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"Runtime": Runtime, "EmbeddingCall": EmbeddingCall, "EmbeddingPurpose": EmbeddingPurpose}
    left = await run(snippets("python")[0], **names)
    (scores, wanted), (used, told) = left["seen"]
    assert [round(float(score), 3) for score in scores] == eval(wanted)
    assert str(used) == f"({told})"


async def test_a_corpus_goes_into_a_store_and_what_is_known_is_passed_over() -> None:
    class Store:
        def __init__(self) -> None:
            self.kept: dict[str, Any] = {"a": np.zeros(1_024)}

        def known(self, pairs: Any) -> set[str]:
            return {id for id, _ in pairs if id in self.kept}

        async def add(self, ids: Any, texts: Any, vectors: Any) -> None:
            self.kept.update(zip(ids, vectors, strict=True))

    pairs = [("a", "known"), ("b", "a text"), ("c", ""), ("d", "another")]
    async with Runtime(RuntimeSettings(store=None)) as runtime:
        await run(snippets("python")[1], runtime=runtime, pairs=pairs, store=(store := Store()))
    assert sorted(store.kept) == ["a", "b", "d"]
    assert np.linalg.norm(store.kept["d"]) == pytest.approx(1.0)


def test_the_entry_of_a_server_of_ones_own_is_a_catalog() -> None:
    catalog = Catalog.load(snippets("yaml")[0])
    assert catalog.entries["local-e5"].prefixes == {"document": "passage: ", "query": "query: "}


async def test_a_provider_of_ones_own_is_one_method(make_entry: Any, make_environment: Any, make_seat: Any) -> None:
    class Http:
        async def post(self, *_: Any) -> Any:
            return {"vectors": [[3.0, 4.0]], "tokens": 2}

    names = {"AbstractEmbeddingsClient": AbstractEmbeddingsClient, "EmbeddingAnswer": EmbeddingAnswer, "Usage": Usage}
    left = await run(snippets("python")[2], **names)
    entry = make_entry(dimensions=2)
    client, seat = left["MyEmbeddings"](entry, make_environment(embedding_width=4)), make_seat(entry)
    client.http = Http()
    answered = await client.bound(seat.binding, seat).embed("a text")
    assert answered.vector.tolist() == pytest.approx([0.6, 0.8, 0.0, 0.0])
    assert answered.usage.input_tokens == 2


def test_the_table_names_every_provider() -> None:
    named = set(re.findall(r"^\| `([a-z-]+)` \| ", PAGE, re.MULTILINE))
    assert named == {wire.key for wire in WIRES}
