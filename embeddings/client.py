"""EmbeddingsClient: what a job is given to embed with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .cutting import Split
from .purpose import EmbeddingPurpose
from .response import EmbeddingsResponse


class EmbeddingsClient(Protocol):
    """One embedding model, bound to a reservation. Every request is sent once, recorded and settled.

    A text longer than the model reads is `TextTooLongError`, an empty one `BlankTextError`; both name every such text
    by its index, before anything is sent. With `truncate=True` a long text is cut instead; with `split="average"` it is
    embedded in parts, and its vector is their average, weighted by their tokens. The response says which were. Where
    the provider refuses a request because of some texts, `TextRefusedError` names them and carries the others' vectors.
    """

    async def embed(
        self,
        text: str,
        purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT,
        *,
        truncate: bool = False,
        split: Split | None = None,
    ) -> EmbeddingsResponse:
        """Embed one text; `.vector` is its vector."""
        ...

    async def embed_batch(
        self,
        texts: Sequence[str],
        purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT,
        *,
        truncate: bool = False,
        split: Split | None = None,
    ) -> EmbeddingsResponse:
        """Embed texts in as few requests as the model's caps allow, several at a time; `.vectors` is in their order.

        When a request fails the whole call fails: no vector is handed out whose neighbours are missing.
        """
        ...

    def get_upstream_retries(self) -> int:
        """How many re-runs this provider advises. What counts is the job's own `upstream_retries`."""
        ...

    # The same, in camel case.
    async def embedBatch(
        self,
        texts: Sequence[str],
        purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT,
        *,
        truncate: bool = False,
        split: Split | None = None,
    ) -> EmbeddingsResponse: ...

    def getUpstreamRetries(self) -> int: ...
