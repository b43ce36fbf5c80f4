"""Which model a job gets by what it sends, where it goes when that fails, and what is left of it: on real clients."""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from interlock.catalog import Catalog, Grade, Input, ModelEntry, ModelSpec
from interlock.clients.conversation import Conversation, DocumentBlock, ImageBlock, TextBlock
from interlock.clients.simulator import SimulatedProvider, Step
from interlock.errors import (
    CredentialError,
    InvalidRequestError,
    ModelResolutionError,
    ProviderRefusalError,
    TransientUpstreamError,
    UpstreamError,
)
from interlock.runtime import Job, JobRequirements, JobResources, LLMCall, Runtime, RuntimeSettings

KEY = "sk-ant-a-very-secret-key-0123456789"
PIXEL = b"\x89PNG\r\n\x1a\n"


def entry(name: str, at: SimulatedProvider, **changes: Any) -> ModelEntry:
    fields: dict[str, Any] = {
        "id": name, "grade": Grade.SMALL, "provider": "simulated", "wire_model_id": name,
        "base_url": at.anthropic_url, "max_output_tokens": 1_000,
    }  # fmt: skip
    return ModelEntry(**(fields | changes))


@asynccontextmanager
async def opened(*entries: ModelEntry, **settings: Any) -> AsyncIterator[Runtime]:
    values = {"catalog": Catalog.of(list(entries)), "store": None, **settings}
    async with Runtime(RuntimeSettings(**values)) as runtime:
        yield runtime


@pytest.fixture
async def provider() -> AsyncIterator[SimulatedProvider]:
    async with SimulatedProvider() as running:
        yield running


@dataclass(frozen=True)
class Looks(Job[str]):
    """A job of one's own that says what it sends, or leaves it to the conversation."""

    picture: Conversation
    model: Any = Grade.SMALL
    sends: frozenset[Input] | None = None

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model(self.model, input=self.picture, max_output_tokens=100, sends=self.sends)

    async def run(self, resources: JobResources) -> str:
        return (await resources.get_llm_client(self.model).single_response(self.picture)).model


async def test_images_and_documents_are_declared_and_the_picker_chooses_by_them(provider: SimulatedProvider) -> None:
    plain = entry("plain", provider)
    seeing = entry("seeing", provider, inputs=frozenset({Input.TEXT, Input.IMAGES}), grade=Grade.MEDIUM)
    picture = Conversation.of([TextBlock("What is it?"), ImageBlock(data=PIXEL)])
    paper = Conversation.of([TextBlock("What is it?"), DocumentBlock(data=b"%PDF-")])
    async with opened(plain, seeing) as runtime:
        assert (await runtime.run(LLMCall("What is it?", model=Grade.SMALL))).model == "plain"
        assert (await runtime.run(LLMCall(picture, model=Grade.SMALL))).model == "seeing"
        assert await runtime.run(Looks(picture, sends=frozenset({Input.IMAGES}))) == "seeing"
        before = provider.count
        for job in (LLMCall(paper, model=Grade.SMALL), Looks(paper), Looks(paper, sends=frozenset({Input.IMAGES}))):
            with pytest.raises(ModelResolutionError, match="takes no document"):
                await runtime.run(job)
        assert provider.count == before


LOOK = ModelSpec(Grade.SMALL, max_output_tokens=100)


@pytest.mark.parametrize("model", [Grade.SMALL, LOOK], ids=["by grade", "by spec"])
async def test_what_a_declared_conversation_holds_need_not_be_said(provider: SimulatedProvider, model: Any) -> None:
    """The client is fetched by what was declared, and a backup that cannot see is none for it either."""
    sees = frozenset({Input.TEXT, Input.IMAGES})
    picture = Conversation.of([TextBlock("What is it?"), ImageBlock(data=PIXEL)])
    plain = entry("plain", provider)
    seeing = entry("seeing", provider, inputs=sees, grade=Grade.MEDIUM, fallbacks=("plain", "other"))
    other = entry("other", provider, inputs=sees, grade=Grade.LARGE)
    async with opened(plain, seeing, other) as runtime:
        assert await runtime.run(Looks(picture, model=model)) == "seeing"
        provider.script(*[Step.server_error(503).on(model="seeing")] * 2)
        assert await runtime.run(Looks(picture, model=model)) == "other"
        assert await runtime.run(Looks(Conversation.of("What is it?"), model=model)) == "plain"


@dataclass(frozen=True)
class ReadsAndLooks(Job[tuple[str, str]]):
    """Declares one spec twice, once with a picture."""

    picture: Conversation

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model(LOOK, input="What is it?")
        needs.require_model(LOOK, input=self.picture)

    async def run(self, resources: JobResources) -> tuple[str, str]:
        reads = resources.get_llm_client(LOOK)
        looks = resources.get_llm_client(replace(LOOK, sends=frozenset({Input.IMAGES})))
        return (await reads.single_response("What is it?")).model, (await looks.single_response(self.picture)).model


async def test_of_two_that_differ_in_what_they_send_each_is_found(provider: SimulatedProvider) -> None:
    seeing = entry("seeing", provider, inputs=frozenset({Input.TEXT, Input.IMAGES}), grade=Grade.MEDIUM)
    picture = Conversation.of([ImageBlock(data=PIXEL)])
    async with opened(entry("plain", provider), seeing, strict_declarations=True) as runtime:
        assert await runtime.run(ReadsAndLooks(picture)) == ("plain", "seeing")


async def test_a_backup_that_cannot_see_is_none_for_a_picture(provider: SimulatedProvider) -> None:
    sees = frozenset({Input.TEXT, Input.IMAGES})
    async with SimulatedProvider() as other:
        provider.always(Step.server_error(503))
        first = entry("first", provider, inputs=sees, fallbacks=("blind", "second"))
        async with opened(first, entry("blind", other), entry("second", other, inputs=sees)) as runtime:
            response = await runtime.run(LLMCall(Conversation.of([ImageBlock(data=PIXEL)]), model="first"))
    assert response.model == "second"
    assert [seen.body["model"] for seen in other.requests] == ["second"]


async def test_a_chain_through_an_alias_tries_each_model_once(provider: SimulatedProvider) -> None:
    async with SimulatedProvider() as other:
        provider.always(Step.server_error(503))
        other.always(Step.server_error(503))
        first = entry("first", provider, fallbacks=("alias",))
        alias = entry("alias", provider, wire_model_id="first", fallbacks=("second",))
        async with opened(first, alias, entry("second", other, fallbacks=("first",))) as runtime:
            with pytest.raises(TransientUpstreamError) as caught:
                await runtime.run(LLMCall("Hello.", model="first", upstream_retries=20))
            rows = await runtime.calls()
    assert [row.record.model for row in rows] == ["first", "first", "second", "second"]
    assert (provider.count, other.count) == (2, 2)
    assert caught.value.model == "second"


async def read_stream(runtime: Runtime) -> None:
    async with runtime.llm("first").stream_response("Hello.") as pieces:
        _ = [piece async for piece in pieces]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_refusal_is_asked_again_neither_there_nor_at_a_backup(
    provider: SimulatedProvider, streamed: bool
) -> None:
    provider.always(Step.refusal("bio", "No."))
    entries = (entry("first", provider, fallbacks=("second",)), entry("second", provider))
    async with opened(*entries) as runtime:
        with pytest.raises(ProviderRefusalError) as caught:
            await (read_stream(runtime) if streamed else runtime.run(LLMCall("Hello.", model="first")))
        assert caught.value.model == "first"
        assert caught.value.usage is not None
        assert provider.count == 1
        assert runtime.statistics().breakers == ()


@pytest.mark.parametrize("strict", [False, True], ids=["lenient", "strict"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_paused_turn_goes_on_as_a_further_reserved_call(
    provider: SimulatedProvider, caplog: pytest.LogCaptureFixture, strict: bool, streamed: bool
) -> None:
    provider.script(Step.answer("First part,", stop_reason="pause_turn"), Step.answer(" second part."))
    slow = entry("first", provider, limits={"rpm": 6, "burst_s": 60})
    async with opened(slow, strict_declarations=strict) as runtime:
        if streamed:
            async with runtime.llm("first").stream_response("Go.") as pieces:
                text = "".join([piece.text async for piece in pieces])
        else:
            text = (await runtime.run(LLMCall("Go.", model="first"))).text
        rows = await runtime.calls()
        account = runtime.statistics().admission.account("model:first:requests")
    assert text == "First part, second part."
    assert provider.count == len(rows) == 2
    assert account.settled == 2
    assert 3.5 < account.level < 4.5, "both are charged: the second one at once, for its job holds what it has"
    assert [(row.record.outcome, row.record.undeclared) for row in rows] == [("ok", False), ("ok", False)]
    assert "undeclared" not in caplog.text


@dataclass(frozen=True)
class AsksTwice(Job[tuple[str, ...]]):
    """Declares two calls and makes `calls` of them."""

    calls: int = 2

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model("first", input="Go.", max_output_tokens=100, calls=2)

    async def run(self, resources: JobResources) -> tuple[str, ...]:
        client = resources.get_llm_client("first")
        return tuple([(await client.single_response("Go.")).text for _ in range(self.calls)])


async def test_a_continuation_takes_none_of_the_declared_calls(provider: SimulatedProvider) -> None:
    pause = Step.answer("First part,", stop_reason="pause_turn")
    provider.script(pause, pause, Step.answer(" third part."), Step.answer("Again."))
    async with opened(entry("first", provider), strict_declarations=True) as runtime:
        assert await runtime.run(AsksTwice()) == ("First part,First part, third part.", "Again.")
        provider.script(pause)
        with pytest.raises(InvalidRequestError, match="declared 2 call"):
            await runtime.run(AsksTwice(calls=3))
    assert provider.count == 4 + 3


def bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


def shown_by(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(vars(error))


@pytest.mark.parametrize(
    ("step", "class_"),
    [
        (Step.status(401, {"error": {"type": "authentication_error", "message": f"bad key {KEY}"}}), CredentialError),
        (Step.status(400, {"error": {"type": "invalid_request_error", "message": f"not {KEY}"}}), InvalidRequestError),
        (Step.html(200, f"<title>{KEY}</title>"), UpstreamError),
    ],
    ids=["401", "400", "html"],
)
async def test_b30_no_secret_in_any_message_log_span_or_row(
    provider: SimulatedProvider,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    step: Step,
    class_: type[Exception],
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    provider.always(step)
    spans, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    real = entry("first", provider, provider="anthropic-direct")
    store = tmp_path / "calls.db"
    with caplog.at_level(logging.DEBUG):
        async with opened(real, store=f"sqlite:///{store}", tracer_provider=tracers) as runtime:
            with pytest.raises(class_) as caught:
                await runtime.run(LLMCall("Hello.", model="first", upstream_retries=0))
            rows = await runtime.calls()
    assert provider.count == len(rows) == 1
    assert "authorization" in provider.requests[-1].headers, "the key was sent, and nowhere else"
    assert spans.get_finished_spans()
    kept = bytes_in(tmp_path)
    told = "".join(span.to_json() for span in spans.get_finished_spans()) + caplog.text + repr(rows)
    assert KEY not in told + shown_by(caught.value)
    assert KEY.encode() not in kept
