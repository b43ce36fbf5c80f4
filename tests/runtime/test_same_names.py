"""The same names everywhere: what a job, a thread's job and a bare Runtime call a model by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from interlock.catalog import Grade, ModelSpec
from interlock.clients.client import LLMClient
from interlock.clients.options import StreamingMode
from interlock.decisions import DecisionClient
from interlock.embeddings import EmbeddingsClient
from interlock.errors import StreamInterruptedError, TransientUpstreamError
from interlock.runtime import BlockingResources, DatabaseSession, Job, JobRequirements, JobResources, Runtime, blocking
from interlock.runtime.direct import DirectDecisions, DirectEmbeddings, DirectLLM
from interlock.runtime.guarded import (
    GuardedDecisionClient,
    GuardedEmbeddingsClient,
    GuardedLLMClient,
    GuardedStream,
)

SPEC = ModelSpec(Grade.SMALL, max_output_tokens=100)


def names(of: type[Any]) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("promised", "classes"),
    [
        (LLMClient, (GuardedLLMClient, DirectLLM, blocking.BlockingLLMClient)),
        (EmbeddingsClient, (GuardedEmbeddingsClient, DirectEmbeddings, blocking.BlockingEmbeddingsClient)),
        (DecisionClient, (GuardedDecisionClient, DirectDecisions, blocking.BlockingDecisionClient)),
    ],
)
def test_every_client_has_every_name(promised: type[Any], classes: tuple[type[Any], ...]) -> None:
    for class_ in classes:
        assert names(promised) <= names(class_), class_


def test_a_threads_resources_have_the_names_of_a_jobs() -> None:
    runtimes_own = {"abandon", "finish", "finish_now", "open_transactions", "record", "reservation_permit", "stop"}
    runtimes_own |= {"strict", "warn_once", "with_totals", "job_name", "written"}
    assert names(JobResources) - runtimes_own <= names(BlockingResources)
    bound_to_the_loop = {"commit", "rollback", "connection", "session"}
    assert names(DatabaseSession) - bound_to_the_loop <= names(blocking.BlockingDatabaseSession)
    assert names(GuardedStream) - {"aclose"} <= names(blocking.BlockingStream)


@dataclass(frozen=True)
class Streams(Job[list[str]]):
    """Reads a stream in a thread: all of it, `take` pieces of it, or by `finish`."""

    take: int | None = None
    mode: StreamingMode = StreamingMode.LIVE

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model(SPEC, input=10)

    def run(self, resources: BlockingResources) -> list[str]:
        client = resources.get_llm_client(SPEC)
        assert client.getUpstreamRetries() == 3
        got: list[str] = []
        with client.streamResponse("x", mode=self.mode) as pieces:
            if self.take == 0:
                return [pieces.finish().text]
            for piece in pieces:
                got.append(piece.text)
                assert pieces.partial.startswith("".join(got))
                if len(got) == self.take:
                    return got
        return [*got, pieces.response.text]


@pytest.mark.parametrize(
    ("job", "got"),
    [
        (Streams(), ["a", "b", "", "ab"]),
        (Streams(mode=StreamingMode.SAFE), ["a", "b", "", "ab"]),
        (Streams(take=0), ["ab"]),
        (Streams(take=1), ["a"]),
    ],
)
async def test_a_thread_reads_a_stream(
    world: Any, runtime: Runtime, Step: Any, job: Job[list[str]], got: list[str]
) -> None:
    world.provider.script(Step(text="ab", pieces=["a", "b"], latency_s=0.1))
    assert await world.until(runtime.run(job)) == got
    (row,) = await runtime.calls()
    assert row.record.outcome == ("cancelled" if job == Streams(take=1) else "ok")


async def test_a_stream_that_breaks_raises_in_the_thread(world: Any, runtime: Runtime, Step: Any) -> None:
    world.provider.script(
        Step(pieces=["a", "b"], break_after=1, latency_s=0.1, error=TransientUpstreamError("gone", status=503))
    )
    with pytest.raises(StreamInterruptedError) as caught:
        await world.until(runtime.run(Streams()))
    assert caught.value.partial == "a"
