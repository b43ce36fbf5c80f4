"""Providers found by key, and the template filled in by a third party."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import pytest

from interlock.admission.clock import Clock, SystemClock
from interlock.admission.outcome import OutcomeKind
from interlock.catalog.entry import Limits, ModelEntry, ProviderSettings
from interlock.catalog.spec import ModelBinding, ModelSpec
from interlock.catalog.words import Grade
from interlock.clients.abstract import AbstractLLMClient, Reply, WireStream
from interlock.clients.answer import Draft
from interlock.clients.asking import Ask
from interlock.clients.conversation import Conversation, TextBlock, ToolResultBlock, ToolUseBlock
from interlock.clients.environment import ClientEnvironment
from interlock.clients.options import CallOptions, Tool
from interlock.clients.registry import missing_extra, provider_class, provider_keys
from interlock.clients.response import Piece, StopReason
from interlock.clients.simulator import Step
from interlock.credentials import Chain, EnvironmentStore, Redactor
from interlock.errors import (
    ConfigurationError,
    InvalidRequestError,
    MalformedResponseError,
    RateLimitedError,
    StreamInterruptedError,
    TransientUpstreamError,
    UpstreamError,
)

from .conftest import FakeSeat


def test_keys_are_found_through_entry_points():
    assert {"anthropic-direct", "openai-chat-completions", "openai-compatible", "simulated"} <= set(provider_keys())
    assert provider_class("anthropic-direct").__name__ == "AnthropicDirectClient"


def test_an_unknown_key_names_what_is_near():
    with pytest.raises(ConfigurationError, match=r"did you mean anthropic-direct\?"):
        provider_class("antropic-direct")
    with pytest.raises(ConfigurationError, match="nor by another package"):
        provider_class("zzz")


def test_a_missing_extra_is_one_sentence():
    error = missing_extra("openai-compatible", ModuleNotFoundError("No module named 'openai.x'", name="openai.x"))
    assert str(error) == "provider 'openai-compatible' needs 'openai': pip install 'interlock[openai]'"
    assert "not installed" in str(missing_extra("mine", ModuleNotFoundError(name="odd")))


# A provider of somebody else's, with no SDK at all.


class Busy(TransientUpstreamError):
    """A provider's own transient error."""


class EchoClient(AbstractLLMClient):
    """Answers with what it was told. Written as a third party would."""

    encoders: ClassVar = {TextBlock: lambda block: block.text}

    def __init__(self, entry: ModelEntry, environment: ClientEnvironment) -> None:
        super().__init__(entry, environment)
        self.fails: list[Exception] = []
        self.closed = 0
        self.holds_open = False

    def encode(self, ask: Ask) -> dict[str, Any]:
        texts = [self.encoders[type(block)](block) for turn in ask.conversation.messages for block in turn.blocks]
        return {"say": " ".join(texts), "limit": ask.max_output_tokens}

    async def send(self, body: bytes) -> Reply:
        if self.fails:
            raise self.fails.pop()
        return Reply(payload=json.loads(body)["say"], request_id="echo-1")

    async def open(self, body: bytes, alive: Callable[[], None]) -> WireStream:
        words = json.loads(body)["say"].split()
        fails, holds_open = self.fails, self.holds_open

        class Words:
            async def __anext__(self) -> Any:
                if holds_open and not words:
                    await asyncio.Event().wait()
                if fails and not words:
                    raise fails.pop()
                if not words:
                    raise StopAsyncIteration
                return words.pop(0)

        async def aclose() -> None:
            self.closed += 1

        return WireStream(events=Words(), aclose=aclose, request_id="echo-2")

    def read_reply(self, payload: Any, draft: Draft) -> None:
        draft.text(0, payload.upper())
        draft.count(input_tokens=1, output_tokens=1)

    def read_event(self, event: Any, draft: Draft) -> Sequence[Piece]:
        draft.complete = event == "end"
        piece = draft.text(0, event)
        return () if piece is None else (piece,)

    def read_error(self, error: Exception) -> UpstreamError | None:
        return Busy("busy", retry_after_s=2.0) if isinstance(error, BlockingIOError) else None


def echo(*, clock: Clock | None = None, holds_open: bool = False) -> tuple[EchoClient, Any, FakeSeat]:
    entry = ModelEntry(id="e", grade=Grade.SMALL, provider="echo", wire_model_id="e", context_window=1_000)
    environment = ClientEnvironment(
        settings=ProviderSettings(),
        credentials=Chain(EnvironmentStore({})),
        redactor=Redactor(),
        clock=clock or SystemClock(),
    )
    client = EchoClient(entry, environment)
    client.holds_open = holds_open
    binding = ModelBinding(spec=ModelSpec("e"), entry=entry, input_tokens=9, output_tokens=9)
    seat = FakeSeat(binding)
    return client, client.bound(binding, seat), seat


async def test_a_third_partys_provider():
    client, bound, seat = echo()
    response = await bound.single_response(Conversation.of("hello there"))
    assert (response.text, response.stop_reason, response.request_id) == ("HELLO THERE", StopReason.END_TURN, "echo-1")
    async with bound.stream_response("to the end") as pieces:
        assert [piece.text async for piece in pieces] == ["to", "the", "end", ""]
    assert client.closed == 1
    assert pieces.response.usage.estimated
    assert seat.kinds == [OutcomeKind.COMPLETED] * 2
    await client.aclose()


async def test_a_third_partys_own_error_is_settled_by_what_it_is():
    client, bound, seat = echo()
    client.fails = [BlockingIOError()]
    with pytest.raises(Busy) as caught:
        await bound.single_response("hello")
    assert (caught.value.model, caught.value.provider, caught.value.retry_after_s) == ("e", "echo", 2.0)
    client.fails = [BlockingIOError()]
    with pytest.raises(StreamInterruptedError):
        await bound.stream_response("to the").finish()
    assert seat.kinds == [OutcomeKind.UNKNOWN] * 2
    assert client.closed == 1


async def test_a_third_partys_chain_into_its_sdk_is_cut():
    client, bound, _ = echo()
    busy = Busy("busy")
    busy.__cause__ = ValueError("Authorization: Bearer sk-a-secret-0123456789")
    client.fails = [busy]
    with pytest.raises(Busy) as caught:
        await bound.single_response("hello")
    assert caught.value is busy
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


async def test_a_forgotten_stream_of_a_third_party_is_closed():
    client, bound, seat = echo()
    stream = bound.stream_response("to the end")
    await anext(stream)
    kept = [stream]
    del stream
    with pytest.warns(ResourceWarning, match="async with"):
        kept.clear()
    for _ in range(3):
        await asyncio.sleep(0)
    assert client.closed == 1
    assert seat.kinds == [OutcomeKind.ABANDONED]


async def test_a_complete_answer_waits_for_no_connection_to_close(manual):
    client, bound, seat = echo(clock=manual, holds_open=True)
    task = asyncio.create_task(bound.stream_response("to the end").finish())
    await manual.advance(1)
    assert not task.done()
    await manual.advance(1.5)
    assert (await task).text == "totheend"
    assert client.closed == 1
    assert seat.kinds == [OutcomeKind.COMPLETED]


def test_the_folders_names_are_found():
    import interlock.clients as clients

    assert clients.__all__ == sorted(clients.__all__)
    assert all(getattr(clients, name).__name__ for name in clients.__all__ if name != "Block")
    with pytest.raises(AttributeError):
        _ = clients.nothing


async def test_a_bug_is_raised_as_it_is_and_recorded_all_the_same():
    client, bound, seat = echo()
    client.fails = [ZeroDivisionError("mine")]
    with pytest.raises(ZeroDivisionError, match="mine"):
        await bound.single_response("hello")
    client.fails = [ZeroDivisionError("mine")]
    with pytest.raises(ZeroDivisionError):
        await bound.stream_response("to the").finish()
    assert [record.outcome for record in seat.records] == ["unclassified"] * 2
    assert seat.kinds == [OutcomeKind.UNKNOWN] * 2


async def test_what_a_reader_stumbles_over_is_a_malformed_answer(monkeypatch):
    client, bound, seat = echo()

    def stumble(payload: Any, draft: Draft) -> None:
        raise KeyError("secret-ish detail")

    monkeypatch.setattr(client, "read_reply", stumble)
    with pytest.raises(MalformedResponseError, match="KeyError") as caught:
        await bound.single_response("hello")
    assert "secret-ish" not in str(caught.value)
    assert seat.last.request_id == "echo-1"


async def test_a_block_without_an_encoder_is_named():
    _, bound, seat = echo()
    asked = Conversation.of("x").assistant([ToolUseBlock(id="t", name="n")]).user([ToolResultBlock(tool_use_id="t")])
    with pytest.raises(InvalidRequestError, match=r"echo cannot write a ToolUseBlock \(turn 2\); it writes TextBlock"):
        await bound.single_response(asked)
    assert seat.permits == []


async def test_what_a_wire_has_no_word_for_is_refused():
    _, bound, _ = echo()
    with pytest.raises(InvalidRequestError, match="'temperature'"):
        await bound.single_response("x", options=CallOptions(temperature=0.5))
    with pytest.raises(InvalidRequestError, match="'tools'"):
        await bound.single_response("x", options=CallOptions(tools=(Tool("t"),)))


# The provider in a thread.


def simulated(limits: Limits | None = None, **settings: Any) -> tuple[Any, Any, FakeSeat]:
    entry = ModelEntry(id="sim", grade=Grade.SMALL, provider="simulated", wire_model_id="sim-1", context_window=10_000,
                       max_output_tokens=1_000)  # fmt: skip
    environment = ClientEnvironment(settings=ProviderSettings(**settings), credentials=Chain(EnvironmentStore({})),
                                    redactor=Redactor(), limits=limits)  # fmt: skip
    client = provider_class("simulated")(entry, environment)
    binding = ModelBinding(spec=ModelSpec("sim"), entry=entry, input_tokens=9, output_tokens=500)
    seat = FakeSeat(binding)
    return client, client.bound(binding, seat), seat


async def test_the_simulated_key_needs_nothing():
    client, bound, seat = simulated()
    other, other_bound, _ = simulated()
    try:
        assert (await bound.single_response("Say hello to the world.")).text
        assert (await other_bound.stream_response("And again.").finish()).text
        assert client.provider is other.provider, "one provider for all with the same options"
        assert client.provider.count == 2
        client.provider.script(Step.rate_limited(1))
        with pytest.raises(UpstreamError):
            await bound.single_response("Once more.")
    finally:
        provider = client.provider
        await client.aclose()
        assert provider.base_url, "another client still speaks to it"
        await other.aclose()
    with pytest.raises(RuntimeError):
        _ = provider.base_url
    assert seat.kinds == [OutcomeKind.COMPLETED, OutcomeKind.RATE_LIMITED]


async def test_the_simulated_provider_enforces_the_pools_limits():
    client, bound, seat = simulated(Limits(rpm=2, burst_s=60), options={"seed": 7})
    try:
        for _ in range(3):
            with suppress(RateLimitedError):
                await bound.single_response("Say hello.")
        assert seat.kinds == [OutcomeKind.COMPLETED] * 2 + [OutcomeKind.RATE_LIMITED]
    finally:
        await client.aclose()


async def test_an_option_that_the_simulated_provider_does_not_have_is_named():
    client, bound, seat = simulated(options={"latncy_s": 1})
    with pytest.raises(ConfigurationError, match="latncy_s"):
        await bound.single_response("x")
    assert seat.permits == []
    await client.aclose()
