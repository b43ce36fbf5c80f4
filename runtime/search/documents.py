"""What is stored and what is found: documents, hits, and the rules every store keeps (pure)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.errors import ConfigurationError, StoreError

from ..store.text import restored, storable

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from interlock.catalog.entry import ModelEntry

#: The collection where none is named.
DOCUMENTS = "documents"
#: What a database's index of ids takes.
MOST_ID_BYTES = 2_000
#: More than any collection holds, and a number that every database takes.
MOST_K = 2**31
#: How far a vector may be from length 1, to be stored.
_UNIT_WITHIN = 1e-3
#: How far from it float32 alone may put it.
_AS_FLOAT32 = 5e-7


@dataclass(frozen=True, kw_only=True)
class Document:
    """A text under an id of its own. `fields` is whatever else is known of it, as JSON values, given back with it."""

    id: str
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise ValueError(f"a document's id is text and not empty, so it cannot be {self.id!r}")
        if len(self.id) > MOST_ID_BYTES // 8 and len(storable(self.id).encode()) > MOST_ID_BYTES:
            raise ValueError(f"the id {self.id[:40]!r}... is longer than {MOST_ID_BYTES:,} bytes")
        if not isinstance(self.text, str):
            raise TypeError(f"the text of {self.id!r} is {type(self.text).__name__}, not str")

    @property
    def digest(self) -> bytes:
        """What the text's vector stands or falls with: SHA-256 of it."""
        return sha256(self.text.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One document found. `score` is the cosine of its vector and the question's, in -1..1."""

    id: str
    score: float
    text: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorModel:
    """Which model made a vector. Entries of one `identity` are one model, whoever serves it; `entry` is the catalog's
    id of the one that was used first."""

    identity: str
    entry: str

    @staticmethod
    def of(model: ModelEntry | VectorModel | str) -> VectorModel:
        if isinstance(model, VectorModel):
            return model
        if isinstance(model, str):
            return VectorModel(identity=model, entry=model)
        return VectorModel(identity=model.identity or model.id, entry=model.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionInfo:
    """What a collection holds: `count` vectors of `width` numbers, all made by one model."""

    name: str
    model: VectorModel
    width: int
    count: int


class CollectionModelError(ConfigurationError):
    """A collection holds vectors of `stored`, and these are `given`: another model's, or of another width."""

    code = "collection_model"

    def __init__(self, message: str, *, stored: VectorModel, given: VectorModel) -> None:
        super().__init__(message)
        self.stored, self.given = stored, given


def command_again(place: str, name: str, *, model: str | None = None, catalog: Path | None = None) -> str:
    """The command line that embeds a whole collection again."""
    words = ["interlock", "embed", "--store", place, *(["--collection", name] if name != DOCUMENTS else [])]
    words += ["--catalog", str(catalog)] if catalog is not None else []
    return shlex.join([*words, "--re-embed", *(["--model", model] if model is not None else [])])


def require_same(
    place: str,
    name: str,
    stored: tuple[VectorModel, int],
    given: tuple[VectorModel, int],
    *,
    writing: bool = True,
    catalog: Path | None = None,
) -> None:
    """CollectionModelError unless model and width are those that are stored. `catalog` is the file that has `given`."""
    (model, width), (other, other_width) = stored, given
    if model.identity == other.identity and width == other_width:
        return
    again = command_again(place, name, model=other.entry, catalog=catalog)
    if model.identity == other.identity:
        raise CollectionModelError(
            f"the collection {name} of {place} holds vectors of width {width}, and these are of width {other_width}: "
            f"set embedding_width: {width} in the catalog, or embed all of it again with `{again}`",
            stored=model,
            given=other,
        )
    instead = f"use {_named(model)}" if writing else f"ask with {_named(model)}"
    raise CollectionModelError(
        f"the collection {name} of {place} holds vectors of {_named(model)}, and {_named(other)} writes others, which "
        f"cannot be compared with those: {instead}, name another collection, or embed all of it again with `{again}`",
        stored=model,
        given=other,
    )


def _named(model: VectorModel) -> str:
    return model.entry if model.entry == model.identity else f"{model.entry} ({model.identity})"


class Row(NamedTuple):
    """A document as a database takes it: its texts without what no database stores, its vector as float32."""

    id: str
    digest: bytes
    text: str
    fields: str
    vector: NDArray[np.float32]


def rows_of(documents: Sequence[Document], vectors: NDArray[Any]) -> list[Row]:
    """Each document with its vector, the last of several with one id. A length that is nearly 1 becomes 1. ValueError
    where they are not as many, or a vector is not one of length 1."""
    import numpy as np

    from interlock.embeddings.vectors import normalise

    given = np.ascontiguousarray(vectors, dtype="<f4")
    if given.ndim != 2 or len(given) != len(documents):
        raise ValueError(f"{len(documents)} documents need vectors of the shape [{len(documents)}, width]")
    off = np.abs(np.linalg.norm(given.astype(np.float64), axis=1) - 1.0)
    bad = np.flatnonzero(~(off <= _UNIT_WITHIN))  # written so that NaN is bad too
    if len(bad):
        raise ValueError(f"the vector of {documents[bad[0]].id!r} is not of length 1: normalise it")
    uneven = off > _AS_FLOAT32
    if uneven.any():  # else a score would be no cosine, and what is nearest another in every store
        given = np.where(uneven[:, None], normalise(given), given).astype("<f4", copy=False)
    rows = {
        document.id: Row(
            storable(document.id), document.digest, storable(document.text), fields_text(document), given[index]
        )
        for index, document in enumerate(documents)
    }
    return list(rows.values())


def fields_text(document: Document) -> str:
    """The fields as JSON text. ValueError for what has no such form."""
    if not document.fields:
        return "{}"
    try:
        return storable(json.dumps(dict(document.fields), ensure_ascii=False, allow_nan=False, sort_keys=True))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the fields of {document.id!r} cannot be written as JSON: {error}") from None


def stored_ids(ids: Sequence[str]) -> list[str]:
    return [storable(id) for id in ids]


def document_of(id: str, text: str, fields: str) -> Document:
    with sound():
        return Document(id=restored(id), text=restored(text), fields=json.loads(restored(fields)))


@contextmanager
def sound() -> Iterator[None]:
    """StoreError for what was stored and cannot be read: somebody else has written there, or the disk has lost it."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreError(
            f"a stored document or vector is damaged ({type(error).__name__}): delete the collection's file or tables, "
            "or bring a copy back, and embed again"
        ) from None


def hits_of(found: Sequence[tuple[str, str, str, Any]], question: NDArray[np.float32], k: int) -> tuple[Hit, ...]:
    """The best `k` of (id, text, fields, vector as bytes or numbers), scored in float64: the same digits from every
    store. Of equal scores the smaller id comes first."""
    import numpy as np

    if not found:
        return ()
    with sound():
        stored = [np.frombuffer(row[3], dtype="<f4") if isinstance(row[3], bytes) else row[3] for row in found]
        scores = np.stack(stored).astype(np.float64) @ question.astype(np.float64)
    best = sorted(zip(scores.tolist(), found, strict=True), key=lambda pair: (-pair[0], pair[1][0]))[:k]
    documents = [(score, document_of(id, text, fields)) for score, (id, text, fields, _) in best]
    return tuple(Hit(id=one.id, score=score, text=one.text, fields=one.fields) for score, one in documents)


def question_of(vector: NDArray[Any]) -> NDArray[np.float32]:
    """A question's vector as float32 of length 1. ValueError for one that is no direction."""
    import numpy as np

    given = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(given)) if given.ndim == 1 else 0.0
    if not 0.0 < length < float("inf"):
        raise ValueError("a question is one vector of finite numbers that are not all zero")
    unit: NDArray[np.float32] = (given / length).astype("<f4")
    return unit


def require_k(k: int) -> int:
    """`k`, no larger than a database counts. ValueError for what is no number of documents."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k is how many documents to find, a whole number and at least 1, not {k!r}")
    return min(k, MOST_K)
