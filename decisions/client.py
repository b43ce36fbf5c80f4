"""DecisionClient: what a job is given to decide with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from .batch import CONCURRENCY, DecisionBatch
from .questions import Question
from .request import DecisionRequest
from .response import DecisionResponse


class DecisionClient(Protocol):
    """One decision model, bound to a reservation. Every call is sent once, recorded and settled, however it ends."""

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        """Answer every question about the state, in one request or in as few as the model takes. Raises `UpstreamError`
        subclasses."""
        ...

    async def decide_batch(
        self,
        states: Iterable[DecisionRequest | Any],
        questions: Mapping[str, Question] | None = None,
        *,
        concurrency: int = CONCURRENCY,
    ) -> DecisionBatch:
        """Many requests, or many states with the same questions: one outcome each, in their order."""
        ...

    def get_upstream_retries(self) -> int:
        """How many re-runs this provider advises. What counts is the job's own `upstream_retries`."""
        ...

    # The same, in camel case.
    async def decideBatch(
        self,
        states: Iterable[DecisionRequest | Any],
        questions: Mapping[str, Question] | None = None,
        *,
        concurrency: int = CONCURRENCY,
    ) -> DecisionBatch: ...

    def getUpstreamRetries(self) -> int: ...
