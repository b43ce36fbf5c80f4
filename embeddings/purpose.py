"""What a text is embedded for. Some models write questions and documents into the space differently."""

from __future__ import annotations

from enum import StrEnum


class EmbeddingPurpose(StrEnum):
    """DOCUMENT: kept to be found. QUERY: asked to find documents."""

    DOCUMENT = "document"
    QUERY = "query"
