"""Every span and meter: what is emitted is named here, and docs/events.md is printed from here.

Names that begin with `gen_ai` are OpenTelemetry's (semantic conventions for generative AI); the others are our own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """`when` says in which cases it is there; empty: always."""

    name: str
    means: str
    when: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanNotes:
    """`name` is the pattern of the span's name; `kind` is OpenTelemetry's."""

    name: str
    kind: str
    covers: str
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterNotes:
    """`unit` in UCUM, as OpenTelemetry writes it; `instrument` is counter, histogram, gauge or up-down counter."""

    name: str
    instrument: str
    unit: str
    counts: str
    attributes: tuple[Attribute, ...]


def _attribute(name: str, means: str, when: str = "") -> Attribute:
    return Attribute(name=name, means=means, when=when)


WORKFLOW = _attribute("gen_ai.workflow.name", "the workflow that fair share counts by", "it has one")
RUN_ID = _attribute("interlock.run.id", "the run it belongs to", "inside a run")
JOB_ID = _attribute("interlock.job.id", "the job")
JOB = _attribute("interlock.job.name", "the job's class")
STEP_ID = _attribute("interlock.step.id", "the step of the pipeline", "inside a pipeline")
STATE = _attribute("interlock.job.state", "succeeded, failed or cancelled")
ATTEMPTS = _attribute("interlock.job.attempts", "attempts it took")
ERROR = _attribute("error.type", "the error's code, as in the table of errors", "it failed")
OPERATION = _attribute("gen_ai.operation.name", "chat, embeddings or decision")
PROVIDER = _attribute("gen_ai.provider.name", "anthropic, openai, aws.bedrock, gcp.gemini, ...")
MODEL = _attribute("gen_ai.request.model", "the model's id on the wire")
SERVED = _attribute("gen_ai.response.model", "the model that the provider says it was", "it says so")
ENTRY = _attribute("interlock.model", "the catalog's entry")
RESPONSE_ID = _attribute("gen_ai.response.id", "the provider's request id", "it gave one")
FINISH = _attribute("gen_ai.response.finish_reasons", "why the answer ended", "it ended")
FIRST_CHUNK = _attribute("gen_ai.response.time_to_first_chunk", "seconds", "it was streamed")
INPUT = _attribute("gen_ai.usage.input_tokens", "tokens read, those of the cache included", "known")
OUTPUT = _attribute("gen_ai.usage.output_tokens", "tokens written, reasoning included", "known")
CACHE_READ = _attribute("gen_ai.usage.cache_read.input_tokens", "of the input, read from the cache", "known")
CACHE_WRITE = _attribute("gen_ai.usage.cache_creation.input_tokens", "of the input, written to the cache", "known")
REASONING = _attribute("gen_ai.usage.reasoning.output_tokens", "of the output, reasoning", "known")
OUTPUT_TEXT = _attribute("gen_ai.output.messages", "the answer, as JSON, without secrets", "`keep_text`")
ATTEMPT = _attribute("interlock.attempt", "which attempt of the job, from 1")
COST = _attribute("interlock.cost", "what it cost", "its price is known")
CURRENCY = _attribute("interlock.currency", "of the cost", "its price is known")
UNMETERED = _attribute("interlock.unmetered", "sent without a reservation (overflow)", "it was")
UNDECLARED = _attribute("interlock.undeclared", "not declared by its job, or not that large", "it was")
WAITED_FOR = _attribute("interlock.account", "the account that held it back longest")
ACCOUNT = _attribute("interlock.account", "the account")
TOKEN_TYPE = _attribute("gen_ai.token.type", "input or output")

SPANS: tuple[SpanNotes, ...] = (
    SpanNotes(
        name="run {pipeline}",
        kind="INTERNAL",
        covers="one run of a pipeline, from its start to its end; its jobs are children",
        attributes=(RUN_ID, JOB_ID, JOB, WORKFLOW, STEP_ID, STATE, ATTEMPTS, ERROR),
    ),
    SpanNotes(
        name="job {job}",
        kind="INTERNAL",
        covers="one job, from when it first stood in the line to its delivery; its waits, its requests and whatever "
        "its own code traces are children",
        attributes=(RUN_ID, JOB_ID, JOB, WORKFLOW, STEP_ID, STATE, ATTEMPTS, ERROR),
    ),
    SpanNotes(
        name="admission",
        kind="INTERNAL",
        covers="one wait in the line, from asking to the grant; none where nothing was waited for",
        attributes=(WAITED_FOR, WORKFLOW),
    ),
    SpanNotes(
        name="{operation} {model}",
        kind="CLIENT",
        covers="one wire request, from its first byte to its last; one that could not be sent has no length",
        attributes=(
            OPERATION, PROVIDER, MODEL, SERVED, ENTRY, RESPONSE_ID, FINISH, FIRST_CHUNK, INPUT, OUTPUT, CACHE_READ,
            CACHE_WRITE, REASONING, OUTPUT_TEXT, ATTEMPT, COST, CURRENCY, UNMETERED, UNDECLARED, ERROR,
        ),
    ),
)  # fmt: skip

TOKENS = MeterNotes(
    name="gen_ai.client.token.usage", instrument="histogram", unit="{token}",
    counts="tokens of a request, where they are known",
    attributes=(TOKEN_TYPE, OPERATION, PROVIDER, MODEL, SERVED),
)  # fmt: skip
DURATION = MeterNotes(
    name="gen_ai.client.operation.duration", instrument="histogram", unit="s",
    counts="a request, from its first byte to its last; refusals are told by error.type",
    attributes=(OPERATION, PROVIDER, MODEL, SERVED, ERROR),
)  # fmt: skip
FIRST = MeterNotes(
    name="gen_ai.client.operation.time_to_first_chunk", instrument="histogram", unit="s",
    counts="a streamed request's first piece",
    attributes=(OPERATION, PROVIDER, MODEL, SERVED),
)  # fmt: skip
SPENT = MeterNotes(
    name="interlock.cost", instrument="counter", unit="{currency}",
    counts="what requests have cost, by the catalog's prices",
    attributes=(CURRENCY, PROVIDER, MODEL, WORKFLOW),
)  # fmt: skip
WAIT = MeterNotes(
    name="interlock.admission.wait", instrument="histogram", unit="s",
    counts="an attempt's wait in the line, nothing waited included",
    attributes=(WORKFLOW,),
)  # fmt: skip
JOBS = MeterNotes(
    name="interlock.jobs", instrument="counter", unit="{job}", counts="jobs that have ended", attributes=(JOB, STATE)
)
LEVEL = MeterNotes(
    name="interlock.account.level", instrument="gauge", unit="1",
    counts="what could be taken of an account now, in its own unit; negative is debt", attributes=(ACCOUNT,),
)  # fmt: skip
CAPACITY = MeterNotes(
    name="interlock.account.capacity", instrument="gauge", unit="1", counts="the most it can hold",
    attributes=(ACCOUNT,),
)  # fmt: skip
SLOWDOWN = MeterNotes(
    name="interlock.account.slowdown", instrument="gauge", unit="1",
    counts="what its refill is divided by, from 1 to 10", attributes=(ACCOUNT,),
)  # fmt: skip
HELD = MeterNotes(
    name="interlock.account.held", instrument="gauge", unit="s", counts="how long a hold still lasts",
    attributes=(ACCOUNT,),
)  # fmt: skip
WAITING = MeterNotes(
    name="interlock.account.waiting", instrument="gauge", unit="{job}", counts="jobs that name it and wait",
    attributes=(ACCOUNT,),
)  # fmt: skip
REFUSALS = MeterNotes(
    name="interlock.account.refusals", instrument="counter", unit="{request}",
    counts="429s and 529s of its pool, by error.type", attributes=(ACCOUNT, ERROR),
)  # fmt: skip

METERS: tuple[MeterNotes, ...] = (
    TOKENS, DURATION, FIRST, SPENT, WAIT, JOBS, LEVEL, CAPACITY, SLOWDOWN, HELD, WAITING, REFUSALS,
)  # fmt: skip

#: Our provider keys in OpenTelemetry's words; any other key stands for itself.
PROVIDER_NAMES = {
    "anthropic-direct": "anthropic",
    "openai": "openai",
    "openai-chat-completions": "openai",
    "openai-embeddings": "openai",
    "openai-decision": "openai",
    "anthropic-bedrock": "aws.bedrock",
    "anthropic-bedrock-mantle": "aws.bedrock",
    "bedrock-converse": "aws.bedrock",
    "bedrock-titan-embeddings": "aws.bedrock",
    "bedrock-cohere-embeddings": "aws.bedrock",
    "gemini": "gcp.gemini",
    "gemini-embeddings": "gcp.gemini",
}
