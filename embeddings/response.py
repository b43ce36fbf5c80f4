"""What an embedding model answered, in one form for every provider."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from interlock.catalog.usage import Usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmbeddingsResponse:
    """Vectors in the order of the texts: float32, shape [texts, width], each of L2 length 1.

    `model` is the catalog entry that served, `served_model` what the provider echoed. `usage` and `cost` (in
    `currency`; None where the entry has no price) are those of all `requests` wire requests together; `request_ids` are
    the provider's own, where it gives them. `truncated` holds the indexes of texts that were cut because the caller
    asked for it, `split` of those whose vector is an average of parts. `latency_s` is seconds over all requests.
    """

    vectors: NDArray[np.float32]
    usage: Usage
    model: str
    provider: str
    served_model: str | None = None
    request_ids: tuple[str, ...] = ()
    requests: int = 1
    cost: Decimal | None = None
    currency: str | None = None
    latency_s: float = 0.0
    truncated: tuple[int, ...] = ()
    split: tuple[int, ...] = ()

    @property
    def vector(self) -> NDArray[np.float32]:
        """The vector of the one text that was embedded. ValueError when there were several, or none."""
        if len(self.vectors) != 1:
            raise ValueError(f"this response holds {len(self.vectors)} vectors: read .vectors")
        only: NDArray[np.float32] = self.vectors[0]
        return only

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    def __len__(self) -> int:
        return len(self.vectors)
