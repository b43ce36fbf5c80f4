"""Collection: the one interface to vectors that are kept, whatever keeps them.

A collection holds vectors of one model, each with its document. What a store must be able to do is below; how a whole
collection changes to another model without a moment in which something is missing, too: the new vectors grow beside the
old ones (`begin_replacement`, `outdated`, `add(..., replacement=True)`), which are found until the last one is there
(`switch`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.errors import StoreError

from .documents import CollectionInfo, Document, Hit, VectorModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from interlock.catalog.entry import ModelEntry

C = TypeVar("C", bound="Collection")


class NoReplacementError(StoreError):
    """Vectors were to be stored beside the old ones, and no replacement is under way, or none any longer: another
    process may have put the new ones in their place."""

    code = "no_replacement"

    def __init__(self, place: str, name: str) -> None:
        super().__init__(f"no replacement of the collection {name} of {place} is under way")


class Collection(ABC):
    """Documents and their vectors: float32, of length 1, all of one width and one model. Open it with
    `open_collection`.

    Every method is one transaction. Several processes may read and write one collection at a time. StoreError where
    the database cannot be used.
    """

    def __init__(self, place: str, name: str) -> None:
        #: The store's URL, without a password.
        self.place = place
        self.name = name

    @abstractmethod
    async def info(self) -> CollectionInfo | None:
        """What is stored; None before the first document."""

    @abstractmethod
    async def add(
        self,
        documents: Sequence[Document],
        vectors: NDArray[Any],
        *,
        model: ModelEntry | VectorModel | str,
        replacement: bool = False,
    ) -> None:
        """Store documents with their vectors [n, width]; one that is there under the same id is replaced.

        The first call decides on the collection's model and width; another's are CollectionModelError. With
        `replacement` into what `begin_replacement` began; NoReplacementError where that is no longer there.
        """

    @abstractmethod
    async def unchanged(self, documents: Sequence[Document]) -> frozenset[str]:
        """The ids of those that are stored with the same text. Where their fields differ, these are taken over."""

    @abstractmethod
    async def get(self, ids: Sequence[str]) -> tuple[Document, ...]:
        """The stored ones of these, in the order of `ids`."""

    @abstractmethod
    async def delete(self, ids: Sequence[str]) -> int:
        """Remove these, and say how many there were."""

    @abstractmethod
    async def search(
        self, vector: NDArray[Any], *, k: int = 10, model: ModelEntry | VectorModel | str | None = None
    ) -> tuple[Hit, ...]:
        """The `k` documents whose vectors are nearest to a question's, best first.

        `model` is what embedded the question: another one than the documents' is CollectionModelError.
        """

    async def index(self, *, replacement: bool = False) -> None:
        """After much was stored: make searching quick, where the store has an index of its own."""
        return

    @abstractmethod
    async def begin_replacement(self, *, model: ModelEntry | VectorModel | str, width: int) -> None:
        """Begin to make all vectors with this model, or go on with that. An unfinished one of another is dropped."""

    @abstractmethod
    async def outdated(self, *, after: str = "", limit: int = 1_000) -> tuple[Document, ...]:
        """Stored documents that the replacement lacks or has with another text, by id, from behind `after`."""

    @abstractmethod
    async def switch(self) -> int:
        """Put the new vectors in the old ones' place, if none is lacking; otherwise say how many are."""

    @abstractmethod
    async def open(self) -> None:
        """Connect. `open_collection` has done it."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections. What was stored stays."""

    async def __aenter__(self: C) -> C:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
