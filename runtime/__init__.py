"""Jobs and pipelines: what is declared, granted, run, recorded.

    job            Job[R], and what is set on it; handle: JobHandle[R]; blocking: what a synchronous job is given
    state          the life of a job: its states and the moves between them
    requirements   JobRequirements: what a job declares
    resources      JobResources: what it was granted
    calls          LLMCall; model_calls: EmbeddingCall, DecisionCall; corpus: embeddings of any number of texts,
                   batching: which of them go together
    pipeline_job   @pipeline; context: PipelineContext; scope: step ids; mapping: ctx.map; streaming: ctx.stream
    execution      one job's life, driven by calls; submitted: what is seen of it; running: its parts from the grant on
    counting       how large a call is, asked of its provider; pausing: a run that starts nothing for a while
    retry          whether it runs again (pure); live: all that have not ended; unsent: what is still free to drop
    dispatcher     takes jobs in and gives executions what they need; attempt: one run of a job's code; prepared: what
                   that was declared to need; spent: what it has used; current: which job's code runs here
    stopper        the first step of stopping a job; guarded: clients that hear of it; uncancelled: awaits that must end
    desk           models chosen, sized and handed out; seat: what a client's call draws on and is written into
    routing        which models are passed over just now, for their backups; kinds: which calls are of one kind
    edited         an edited catalog is taken over; levels: what admission has learnt outlives the process
    database       DatabaseProvider, and a job's transaction; threads: synchronous code
    runtime        Runtime; settings: RuntimeSettings; direct: calls without a pipeline; sync: run(job)
    inside         what modules here that build on an open Runtime need of it
    ledger         from the settings to a shared ledger; statistics: what a Runtime has done so far
    store/         the records, the runs, the journal's rows and the queue, in SQLite or Postgres
    journal/       what every step of a pipeline came to, and how a run that was cut off goes on
    worker/        runs put into the store's queue, claimed and seen through
    telemetry/     spans and meters
    search/        what was embedded, kept and searched
    decisions_eval/ how good decisions are, and how sure they should have been
    plan/          a forecast on virtual time; discovery/ what the credentials can call
    cli/           the command line; printable: others' words on a terminal; demo/ the main job

The topmost layer: nothing else of Interlock imports it. A name is imported on first use; neither SQLAlchemy nor numpy
is loaded before a Runtime with a store is opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batching import RefusedText as RefusedText
    from .blocking import BlockingResources as BlockingResources
    from .calls import LLMCall as LLMCall
    from .context import PipelineContext as PipelineContext
    from .corpus import (
        CorpusTextError as CorpusTextError,
        EmbeddedBatch as EmbeddedBatch,
        embed_corpus as embed_corpus,
    )
    from .database import DatabaseProvider as DatabaseProvider, DatabaseSession as DatabaseSession
    from .handle import JobHandle as JobHandle
    from .job import Job as Job
    from .journal.memory import MemoryJournal as MemoryJournal
    from .journal.names import journaled_as as journaled_as
    from .mapping import MapOutcome as MapOutcome, Mapped as Mapped
    from .model_calls import DecisionCall as DecisionCall, EmbeddingCall as EmbeddingCall
    from .pipeline_job import Pipeline as Pipeline, PipelineJob as PipelineJob, pipeline as pipeline
    from .requirements import JobRequirements as JobRequirements
    from .resources import JobResources as JobResources
    from .runtime import Runtime as Runtime
    from .settings import ModelSettings as ModelSettings, RuntimeSettings as RuntimeSettings
    from .state import JobState as JobState
    from .statistics import RuntimeStatistics as RuntimeStatistics
    from .store.rows import CallRow as CallRow, RunRow as RunRow
    from .streaming import CallStream as CallStream
    from .sync import run as run

_PLACES = {
    "blocking": "BlockingResources",
    "calls": "LLMCall",
    "batching": "RefusedText",
    "corpus": "CorpusTextError EmbeddedBatch embed_corpus",
    "database": "DatabaseProvider DatabaseSession",
    "handle": "JobHandle",
    "job": "Job",
    "mapping": "MapOutcome Mapped",
    "journal.memory": "MemoryJournal",
    "journal.names": "journaled_as",
    "model_calls": "DecisionCall EmbeddingCall",
    "context": "PipelineContext",
    "pipeline_job": "Pipeline PipelineJob pipeline",
    "requirements": "JobRequirements",
    "resources": "JobResources",
    "runtime": "Runtime",
    "settings": "ModelSettings RuntimeSettings",
    "state": "JobState",
    "statistics": "RuntimeStatistics",
    "store.rows": "CallRow RunRow",
    "streaming": "CallStream",
    "sync": "run",
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
