"""EmbeddingCall and DecisionCall: one call of an embedding or a decision model as a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from interlock.catalog.spec import ModelSpec
from interlock.catalog.words import Kind
from interlock.decisions import DecisionRequest
from interlock.embeddings.cutting import Split
from interlock.embeddings.purpose import EmbeddingPurpose

from .job import Job

if TYPE_CHECKING:
    from interlock.decisions import DecisionResponse
    from interlock.decisions.questions import Question
    from interlock.embeddings.response import EmbeddingsResponse

    from .requirements import JobRequirements
    from .resources import JobResources


@dataclass(frozen=True, init=False)
class EmbeddingCall(Job["EmbeddingsResponse"]):
    """Embed one text (`result.vector`) or several (`result.vectors`, in their order), in as few requests as fit."""

    texts: tuple[str, ...]
    spec: ModelSpec
    purpose: EmbeddingPurpose
    truncate: bool
    split: Split | None

    def __init__(
        self,
        content: str | Sequence[str],
        *,
        model: ModelSpec | str | None = None,
        purpose: EmbeddingPurpose = EmbeddingPurpose.DOCUMENT,
        truncate: bool = False,
        split: Split | None = None,
        upstream_retries: int = 3,
        timeout_s: float | None = 1800.0,
        priority: int = 0,
        workflow: str = "",
        max_wait_s: float | None = None,
        overflow: Literal["fail", "proceed"] = "fail",
    ) -> None:
        _set(
            self,
            texts=(content,) if isinstance(content, str) else tuple(content),
            spec=_spec(model, Kind.EMBEDDINGS),
            purpose=EmbeddingPurpose(purpose),
            truncate=truncate,
            split=split,
            upstream_retries=upstream_retries,
            timeout_s=timeout_s,
            priority=priority,
            workflow=workflow,
            max_wait_s=max_wait_s,
            overflow=overflow,
        )

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_embeddings(self.spec, input=self.texts, truncate=self.truncate, split=self.split)

    async def run(self, resources: JobResources) -> EmbeddingsResponse:
        client = resources.get_embeddings_client(self.spec)
        return await client.embed_batch(self.texts, self.purpose, truncate=self.truncate, split=self.split)


@dataclass(frozen=True, init=False)
class DecisionCall(Job["DecisionResponse"]):
    """Answer typed questions about a state: `result.choice(id)`, `.noul(id)`, `.score(id)`.

    `DecisionCall(state, questions)` or `DecisionCall(request)`.
    """

    request: DecisionRequest
    spec: ModelSpec

    def __init__(
        self,
        state: Any,
        questions: Mapping[str, Question] | None = None,
        *,
        model: ModelSpec | str | None = None,
        upstream_retries: int = 3,
        timeout_s: float | None = 1800.0,
        priority: int = 0,
        workflow: str = "",
        max_wait_s: float | None = None,
        overflow: Literal["fail", "proceed"] = "fail",
    ) -> None:
        if isinstance(state, DecisionRequest) and questions is None:
            request = state
        elif questions is not None:
            request = DecisionRequest(state, questions)
        else:
            raise TypeError("DecisionCall needs a state and its questions, or a DecisionRequest")
        _set(
            self,
            request=request,
            spec=_spec(model, Kind.DECISION),
            upstream_retries=upstream_retries,
            timeout_s=timeout_s,
            priority=priority,
            workflow=workflow,
            max_wait_s=max_wait_s,
            overflow=overflow,
        )

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_decision(self.spec, input=self.request)

    async def run(self, resources: JobResources) -> DecisionResponse:
        return await resources.get_decision_client(self.spec).decide(self.request)


def _spec(model: ModelSpec | str | None, kind: Kind) -> ModelSpec:
    return replace(model, kind=kind) if isinstance(model, ModelSpec) else ModelSpec(model, kind=kind)


def _set(job: Job[Any], **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(job, name, value)
