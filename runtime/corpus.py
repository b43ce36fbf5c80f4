"""A corpus of any size through one embedding model: batch by batch, in bounded memory, resumable.

    async with aclosing(embed_corpus(runtime, pairs, known=store.known)) as batches:
        async for batch in batches:
            await store.add(batch.ids, batch.texts, batch.vectors)

The texts are read as they are needed. A batch is as many of them as one request of the model takes, and one
`EmbeddingCall`: priced in tokens, admitted, re-run, recorded and capped like any other job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from interlock.catalog.spec import ModelSpec
from interlock.catalog.words import Kind
from interlock.embeddings.errors import TextError, TooManyRefusedError
from interlock.embeddings.purpose import EmbeddingPurpose
from interlock.embeddings.sending import NAMEABLE_TEXTS, is_of_the_body
from interlock.errors import InvalidRequestError, UpstreamError

from .batching import BATCH_TEXTS, Batch, Known, Packer, Pair, RefusedText, read_batches
from .context import PipelineContext
from .inside import dispatcher_of
from .job import Job
from .mapping import MapOutcome, MapOutcomes, Mapped, MapPlan
from .model_calls import EmbeddingCall
from .stopper import Stopper

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from interlock.embeddings.cutting import Split
    from interlock.embeddings.response import EmbeddingsResponse

    from .handle import JobHandle
    from .resources import JobResources
    from .runtime import Runtime

Id = TypeVar("Id", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")

#: How many texts in batches of their own may be refused before one was embedded.
DOUBTS = 8
#: How many texts one after the other may get a vector that is none, before one batch comes through.
MOST_ODD = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmbeddedBatch(Generic[Id]):
    """Texts with their vectors: float32 [texts, width], in the order of `ids`.

    `response` is the call's own, None where nothing had to be sent. `refused` are the texts next to these that have no
    vector, `skipped` how many were passed over since the batch before because they are `known`. A batch may hold no
    text at all where only those are to be told.
    """

    ids: tuple[Id, ...]
    texts: tuple[str, ...]
    vectors: NDArray[np.float32]
    response: EmbeddingsResponse | None
    refused: tuple[RefusedText[Id], ...] = ()
    skipped: int = 0

    @property
    def cost(self) -> Decimal | None:
        """In `response.currency`; None is unknown."""
        return Decimal(0) if self.response is None else self.response.cost

    @property
    def tokens(self) -> int:
        """Input tokens, as far as they are known."""
        return 0 if self.response is None else self.response.usage.input_tokens or 0

    def __len__(self) -> int:
        return len(self.ids)


class CorpusTextError(InvalidRequestError):
    """Texts of a corpus that have no vector. `refused` names them by their ids. What came before has been delivered."""

    code = "corpus_text"

    def __init__(self, message: str, *, refused: tuple[RefusedText[Any], ...] = (), **known: Any) -> None:
        super().__init__(message, **known)
        self.refused = refused


async def embed_corpus(
    runtime: Runtime | PipelineContext,
    texts: Iterable[Pair[Id]] | AsyncIterable[Pair[Id]],
    *,
    model: ModelSpec | str | None = None,
    purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT,
    truncate: bool = False,
    split: Split | None = None,
    known: Known[Id] | None = None,
    refused: Literal["raise", "keep"] = "raise",
    batch_texts: int = BATCH_TEXTS,
    limit: int | None = None,
    **job: Any,
) -> AsyncGenerator[EmbeddedBatch[Id], None]:
    """Embed `(id, text)` pairs, at most `limit` batches of at most `batch_texts` at once; batches in the order of the
    texts. In memory are never more than `2 * limit` batches and 1,000 texts that were read ahead. `limit` None: 16, or
    64 for a model that takes one text a request.

    `known(pairs)` says which of the next texts the sink has already, by their ids (a set; it may be async): they are
    passed over, so a corpus that was interrupted goes on where its sink ended. Store a batch before the next one is
    asked for. `refused`: a text without a vector (empty, too long unless `truncate` or `split`, refused by the
    provider) raises CorpusTextError once the rest of its batch is delivered, or with "keep" stands in `batch.refused`.
    Everything else that fails is raised at its place and stops what is under way; leave early with `aclose`. `job` are
    further arguments of EmbeddingCall (`workflow`, `priority`, `max_wait_s`, ...).
    """
    if type(batch_texts) is not int or batch_texts < 1:
        raise ValueError(f"a batch holds at least 1 text, so batch_texts cannot be {batch_texts!r}")
    if refused not in ("raise", "keep"):
        raise ValueError(f'refused is "raise" or "keep", not {refused!r}')
    spec = (
        replace(model, kind=Kind.EMBEDDINGS) if isinstance(model, ModelSpec) else ModelSpec(model, kind=Kind.EMBEDDINGS)
    )

    def call(some: Sequence[str]) -> EmbeddingCall:
        return EmbeddingCall(some, model=spec, purpose=purpose, truncate=truncate, split=split, **job)

    packer = Packer[Id](dispatcher_of(runtime).desk, spec, cuts=truncate or split is not None, batch_texts=batch_texts)
    feed = read_batches(texts, packer, known)
    doubts = _Doubts()
    outcomes = _outcomes(
        runtime,
        feed,
        lambda batch: call(batch.texts) if batch.texts else _Nothing(),
        packer.limit if limit is None else limit,
    )
    try:
        async for outcome in outcomes:
            parts = await _answered(runtime, outcome, call, doubts)
            del outcome
            out: list[RefusedText[Id]] = []
            while parts:
                done = _embedded(*parts.popleft(), packer.width)  # held once, while the caller stores it
                out += done.refused
                yield done
            if out and refused == "raise":
                raise _refusing(tuple(out))
    finally:
        await outcomes.aclose()
        await feed.aclose()


@dataclass(frozen=True)
class _Nothing(Job[None]):
    """In the place of a call that has no text to embed."""

    async def run(self, resources: JobResources) -> None:
        return None


def _outcomes(
    runtime: Runtime | PipelineContext, feed: AsyncIterable[T], call: Callable[[T], Job[R]], limit: int
) -> MapOutcomes[T, R]:
    if isinstance(runtime, PipelineContext):
        return runtime.map(feed, call, limit=limit).outcomes()

    def submit(job: Job[S], path: tuple[str, ...]) -> JobHandle[S]:
        return runtime.submit(job)

    plan = MapPlan(submit=submit, path=(), items=feed, fn=call, key=None, limit=limit, stopper=Stopper(), pulls=set())
    return Mapped(plan).outcomes()


class _Doubts:
    """Whether a text that is refused in a batch of its own, or whose vector is none, is at fault, or what all are sent
    with: until one has been embedded nobody knows, and a few are taken for texts at fault."""

    def __init__(self) -> None:
        self._left, self._odd = DOUBTS, MOST_ODD
        #: A short text that was embedded.
        self.taken: str | None = None

    def embedded(self, texts: Sequence[str] = ()) -> None:
        """Something was: `texts`, where it is known which."""
        self._left, self._odd = -1, MOST_ODD
        self.taken = min((*texts[:1], *([] if self.taken is None else [self.taken])), key=len, default=None)

    def is_the_text(self, error: BaseException) -> bool:
        if not is_of_the_body(error) or self._left == 0:
            return False
        self._left -= self._left > 0
        return True

    def odd_one(self, error: BaseException) -> int | None:
        """Whose vector is none, where its neighbours are worth another call."""
        from interlock.embeddings.vectors import VectorError, VectorWidthError

        if not isinstance(error, VectorError) or isinstance(error, VectorWidthError):
            return None
        self._odd -= 1
        return error.row if self._odd >= 0 else None


#: Part of a batch without what was refused, and what was answered to it.
_Part: TypeAlias = "tuple[Batch[Id], EmbeddingsResponse | None]"


async def _answered(
    runtime: Runtime | PipelineContext,
    outcome: MapOutcome[Batch[Id], EmbeddingsResponse | None],
    call: Callable[[Sequence[str]], EmbeddingCall],
    doubts: _Doubts,
) -> deque[_Part[Id]]:
    """The batch, in parts where it had to be sent again in parts."""
    if outcome.error is not None:
        return await _once_more(runtime, outcome.item, outcome.error, call, doubts)
    if outcome.item.texts:
        doubts.embedded(outcome.item.texts)
    return deque([(outcome.item, outcome.result)])


async def _once_more(
    runtime: Runtime | PipelineContext,
    batch: Batch[Id],
    error: BaseException,
    call: Callable[[Sequence[str]], EmbeddingCall],
    doubts: _Doubts,
    *,
    of_many: bool = False,
) -> deque[_Part[Id]]:
    """A batch that failed: without the texts that are at fault, if it is those. Otherwise the error is raised.
    `of_many`: it is a part of a batch of which very many were refused, though not all."""
    if len(batch.texts) == 1 and doubts.is_the_text(error):
        return deque([(batch.without([0], str(error)), None)])
    if isinstance(error, TooManyRefusedError) and len(batch.texts) > NAMEABLE_TEXTS:
        doubts.embedded()
        again, of_many = batch.parts(NAMEABLE_TEXTS), True
    elif isinstance(error, TextError):
        # Where nothing was sent the model's own counts have made a text too long since it was read.
        again = [batch.without(error.indexes, str(error))]
        if error.kept is not None:
            return deque([(again[0], error.kept)])
    elif (odd := doubts.odd_one(error)) is not None:
        again = [batch.without([odd], str(error))]
    elif len(batch.texts) > 1 and is_of_the_body(error) and (of_many or await _others_are_taken(runtime, call, doubts)):
        again = batch.parts(1)
    else:
        raise error
    done: deque[_Part[Id]] = deque()
    for part in again:
        if not part.texts:
            done.append((part, None))
            continue
        try:
            done.append((part, await runtime.run(call(part.texts))))
            doubts.embedded(part.texts)
        except UpstreamError as failed:
            done += await _once_more(runtime, part, failed, call, doubts, of_many=of_many)
    return done


async def _others_are_taken(
    runtime: Runtime | PipelineContext, call: Callable[[Sequence[str]], EmbeddingCall], doubts: _Doubts
) -> bool:
    """Where all texts of a batch are refused: whether one that was embedded before still is. Until there is one, a few
    are taken for texts at fault."""
    if doubts.taken is None:
        return True
    try:
        await runtime.run(call([doubts.taken]))
    except UpstreamError:
        return False
    return True


def _embedded(batch: Batch[Id], response: EmbeddingsResponse | None, width: int) -> EmbeddedBatch[Id]:
    import numpy as np

    return EmbeddedBatch(
        ids=tuple(batch.ids),
        texts=tuple(batch.texts),
        vectors=np.zeros((0, width), dtype=np.float32) if response is None else response.vectors,
        response=response,
        refused=tuple(batch.refused),
        skipped=batch.skipped,
    )


def _refusing(refused: tuple[RefusedText[Id], ...]) -> CorpusTextError:
    shown = "; ".join(f"{text.id!r} {text.reason}" for text in refused[:5])
    more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
    return CorpusTextError(
        f"{len(refused)} of the texts have no vector: {shown}{more}. Leave them out or mend them, ask for"
        ' truncate=True or split="average" where they are too long, or keep going with refused="keep".',
        refused=refused,
        sent=False,
    )
