"""`interlock search`: what a collection holds that is nearest to a question."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime import Runtime
from ..search.documents import DOCUMENTS
from ..search.embedding import search_documents
from ..search.opening import open_collection
from ..settings import RuntimeSettings
from .catalog import load_catalog
from .embed import RECORDS

if TYPE_CHECKING:
    from rich.table import Table

    from ..search.documents import Hit

#: Characters of a text that are shown.
SNIPPET = 100
_WORD = re.compile(r"\w{3,}")


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    question: str
    store: str
    collection: str = DOCUMENTS
    k: int = 10
    as_json: bool = False
    catalog: Path | None = None
    records: str = RECORDS


def show_search(options: SearchOptions) -> None:
    """Print what is found, best first. Raises for a store without that collection, or a model that cannot be called."""
    settings = RuntimeSettings(catalog=load_catalog(options.catalog), store=options.records)
    hits = asyncio.run(_search(options, settings))
    if options.as_json:
        print(json.dumps([as_object(hit) for hit in hits], indent=1))
        return
    from .screen import screen

    screen().print(table(hits, options.question) if hits else f"Nothing is stored in {options.collection}.")


async def _search(options: SearchOptions, settings: RuntimeSettings) -> tuple[Hit, ...]:
    # One search of a file is quicker than reading all of it into memory first.
    opening = open_collection(options.store, options.collection, create=False, hold_mb=0)
    async with await opening as collection, Runtime(settings) as runtime:
        return await search_documents(runtime, collection, options.question, k=options.k)


def as_object(hit: Hit) -> dict[str, Any]:
    return {"id": hit.id, "score": round(hit.score, 6), "text": hit.text, "fields": dict(hit.fields)}


def table(hits: tuple[Hit, ...], question: str) -> Table:
    from rich.table import Table

    from ..printable import cell

    shown = Table()
    shown.add_column("score", justify="right")
    shown.add_column("id", overflow="fold")
    shown.add_column("text")
    for hit in hits:
        shown.add_row(f"{hit.score:.3f}", cell(hit.id), cell(snippet(hit.text, question)))
    return shown


def snippet(text: str, question: str) -> str:
    """The part of a text where the question's words first stand, or its beginning, on one line."""
    plain = " ".join(text.split())
    if len(plain) <= SNIPPET:
        return plain
    places = [plain.casefold().find(word) for word in _WORD.findall(question.casefold())]
    first = min((place for place in places if place >= 0), default=0)
    begin = 0 if first < SNIPPET // 2 else plain.rfind(" ", 0, first - SNIPPET // 4) + 1
    part = plain[begin : begin + SNIPPET]
    if begin + SNIPPET < len(plain):
        part = part[: part.rfind(" ") if " " in part[SNIPPET // 2 :] else SNIPPET] + " ..."
    return part if not begin else f"... {part}"
