"""The work as Interlock runs it: one pipeline an entry, four jobs in it, and one pipeline over all entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interlock.decisions import DecisionResponse

from ..calls import LLMCall
from ..context import PipelineContext
from ..job import Job
from ..model_calls import DecisionCall, EmbeddingCall
from ..pipeline_job import pipeline
from .corpus import Entry
from .library import store
from .work import AREA, DEPRECATED, MAX_OUTPUT_TOKENS, SYSTEM, Card, prompt_of, row_of, searchable, state_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..requirements import JobRequirements
    from ..resources import JobResources

LIBRARY = "library"
UNDER_WAY = 48  # entries begun and not finished: enough that the provider's limit never waits for work


@dataclass(frozen=True, eq=False)
class StoreEntry(Job[None]):
    """Compare what was written with what it was written about, and store all of it.

    The embedding model and the database are granted together. The connection is taken at the first statement, when the
    embedding is there.
    """

    entry: Entry
    decision: DecisionResponse
    card: Card
    vector: NDArray[np.float32]

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_embeddings(input=self.card.summary)
        needs.require_database(LIBRARY, transaction=True)

    async def run(self, resources: JobResources) -> None:
        summary = await resources.get_embeddings_client().embed(self.card.summary)
        likeness = float(self.vector @ summary.vector)
        area, deprecated = self.decision.choice("area").choice, self.decision.noul("deprecated").noul
        row = row_of(self.entry, area, deprecated, self.card, likeness, self.vector)
        await store(resources.database(LIBRARY).execute, row, self.card.keywords)


@pipeline
async def catalogue(ctx: PipelineContext, entry: Entry) -> Card:
    """One entry: decide, write and embed at once, then store."""
    decision, card, embedded = await ctx.gather(
        DecisionCall(state_of(entry), {"area": AREA, "deprecated": DEPRECATED}),
        LLMCall(prompt_of(entry), system=SYSTEM, max_output_tokens=MAX_OUTPUT_TOKENS, response_model=Card),
        EmbeddingCall(searchable(entry)),
    )
    await ctx.run(StoreEntry(entry, decision, card, embedded.vector))
    return card


@pipeline
async def catalogue_all(
    ctx: PipelineContext, corpus: tuple[Entry, ...], ended: Callable[[BaseException | None], Any]
) -> None:
    """Every entry, in bounded memory. `ended` hears how each one went."""
    async for outcome in ctx.map(corpus, catalogue, key=lambda entry: entry.name, limit=UNDER_WAY).outcomes():
        ended(outcome.error)
