"""DecisionClient: what a job is given to decide with."""

from __future__ import annotations

from typing import Protocol

from .request import DecisionRequest
from .response import DecisionResponse


class DecisionClient(Protocol):
    """One decision model, bound to a reservation. Every call is sent once, recorded and settled, however it ends."""

    async def decide(self, request: DecisionRequest) -> DecisionResponse:
        """Answer every question about the state, in one request. Raises `UpstreamError` subclasses."""
        ...

    def get_upstream_retries(self) -> int:
        """How many re-runs this provider advises. What counts is the job's own `upstream_retries`."""
        ...

    # The same, in camel case.
    def getUpstreamRetries(self) -> int: ...
