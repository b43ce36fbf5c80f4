"""Documents that were embedded, kept and searched: one interface, in SQLite or in Postgres with pgvector.

    documents   Document, Hit, CollectionInfo, and the rules of every store (pure)
    collection  Collection: what a store can do
    opening     open_collection: from a URL to one
    sqlite      in a file; sqlite_tables: its statements; scan: every vector compared, exactly; codes: a byte a number
    postgres    on a server; postgres_tables: its statements and the HNSW index; postgres_lost: a server that restarts
    embedding   embed_documents, embed_again, search_documents: through a Runtime

Importing the package loads neither numpy nor a driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .collection import Collection as Collection
    from .documents import (
        CollectionInfo as CollectionInfo,
        CollectionModelError as CollectionModelError,
        Document as Document,
        Hit as Hit,
        VectorModel as VectorModel,
    )
    from .embedding import (
        EmbedTotals as EmbedTotals,
        RefusedDocument as RefusedDocument,
        embed_again as embed_again,
        embed_documents as embed_documents,
        search_documents as search_documents,
    )
    from .opening import open_collection as open_collection

_HOMES = {
    "Collection": ".collection",
    "CollectionInfo": ".documents",
    "CollectionModelError": ".documents",
    "Document": ".documents",
    "EmbedTotals": ".embedding",
    "Hit": ".documents",
    "RefusedDocument": ".embedding",
    "VectorModel": ".documents",
    "embed_again": ".embedding",
    "embed_documents": ".embedding",
    "open_collection": ".opening",
    "search_documents": ".embedding",
}

__all__ = [
    "Collection",
    "CollectionInfo",
    "CollectionModelError",
    "Document",
    "EmbedTotals",
    "Hit",
    "RefusedDocument",
    "VectorModel",
    "embed_again",
    "embed_documents",
    "open_collection",
    "search_documents",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
