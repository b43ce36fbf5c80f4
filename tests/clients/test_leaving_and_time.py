"""Cancelled, abandoned, forgotten and timed out: whatever way a call is left, it is settled and recorded at once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from decimal import Decimal

import pytest

from interlock.admission.clock import ManualClock
from interlock.admission.outcome import OutcomeKind
from interlock.catalog.usage import Usage
from interlock.clients.options import StreamingMode
from interlock.clients.simulator import Answer, Step
from interlock.clients.stream import ResponseStream
from interlock.clients.watch import AttemptTimeout, Watch, verdict
from interlock.errors import StreamInterruptedError, TransientUpstreamError

from .conftest import asked

STORY = "Tell me a story of some length, please, with a beginning and an end."


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Nothing here may wait for the garbage collector."""
    gc.disable()
    yield
    gc.enable()


def forget(kept: list[object]) -> None:
    kept.clear()


async def fail_in(stream: ResponseStream) -> None:
    async with stream as pieces:
        async for _ in pieces:
            raise ZeroDivisionError


async def started(until, provider):
    await until(lambda: provider.requests and provider.requests[-1].status is not None)


# Cancelled.


async def test_b17_cancelled_while_waiting_for_a_whole_answer(bench, wire, until):
    client, seat = bench.client(wire, input_tokens=50)
    bench.script(Step.stall())
    task = asyncio.create_task(client.single_response(STORY))
    await until(lambda: bench.provider.count == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seat.kinds == [OutcomeKind.ABANDONED]
    assert seat.last.outcome == "cancelled"
    assert seat.last.usage == Usage(input_tokens=50, output_tokens=0, estimated=True)
    assert seat.last.cost == Decimal(50 * 3) / 1_000_000
    await until(lambda: bench.provider.requests[-1].cut == "client")
    seat.check_books()


async def test_b17_cancelled_in_mid_stream(bench, wire, until):
    client, seat = bench.client(wire, input_tokens=50)
    bench.script(Step.stall(3))
    seen: list[str] = []

    async def consume() -> None:
        async with client.stream_response(STORY) as pieces:
            async for piece in pieces:
                seen.append(piece.text)

    task = asyncio.create_task(consume())
    await until(lambda: len(seen) == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seat.kinds == [OutcomeKind.ABANDONED]
    record = seat.last
    assert record.outcome == "cancelled"
    assert record.usage.estimated
    assert record.usage.input_tokens > 0
    assert record.usage.output_tokens >= len("".join(seen).split())
    assert record.cost > 0
    await until(lambda: bench.provider.requests[-1].cut == "client")
    seat.check_books()


async def test_b17_cancelled_before_the_first_piece(bench, wire, until):
    client, seat = bench.client(wire, input_tokens=50)
    bench.script(Step.stall(0))
    task = asyncio.create_task(client.stream_response(STORY).finish())
    await started(until, bench.provider)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seat.kinds == [OutcomeKind.ABANDONED]
    assert seat.last.usage.input_tokens > 0
    assert seat.last.usage.output_tokens == 0
    seat.check_books()


@pytest.mark.filterwarnings("ignore:coroutine '(OpenAI|Anthropic)ChatCompletion:RuntimeWarning")  # LiteLLM's, not begun
@pytest.mark.filterwarnings("ignore:.*ChatCompletion.completion:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b06_cancelled_at_every_turn_of_the_loop(bench, wire, streamed):
    """However far a call has come when it is cancelled, it ends once, and its one connection serves the next call."""
    client, seat = bench.client(wire, settings={"max_connections": 1}, timeout_s=30)
    bench.provider.always(Step.answer("Fine, thank you very much indeed."))
    for turns in range(0, 120 if wire.key == "litellm" else 60, 2):
        task = asyncio.create_task(
            client.stream_response("Hello.").finish() if streamed else client.single_response("Hello.")
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    seat.check_books()
    assert all(len(permit.outcomes) == 1 for permit in seat.permits)
    assert (await client.single_response("Hello.")).text == "Fine, thank you very much indeed."


async def test_a_commit_that_is_slow_is_awaited_and_survives_a_cancel(bench, wire, until):
    client, seat = bench.client(wire)
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    seat.commits = wait
    task = asyncio.create_task(client.single_response("Hello."))
    await until(lambda: seat.records)
    assert not task.done(), "the result is not used before its row is committed"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seat.last.outcome == "ok"
    assert seat.kinds == [OutcomeKind.COMPLETED]
    gate.set()


# Left.


async def test_b17_closed_in_mid_stream(bench, wire, until):
    client, seat = bench.client(wire)
    bench.script(Step.stall(2))
    async with client.stream_response(STORY) as pieces:
        async for _ in pieces:
            break
        partial = pieces.partial
    assert partial
    assert seat.kinds == [OutcomeKind.ABANDONED]
    assert seat.last.outcome == "cancelled"
    await until(lambda: bench.provider.requests[-1].cut == "client")
    with pytest.raises(RuntimeError, match="read to its end"):
        _ = pieces.response
    await pieces.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(pieces)
    seat.check_books()


async def test_a_stream_closed_by_another_task_lets_its_reader_go(bench, wire, until):
    """As a job's own timeout does it: wherever the reader waits, nothing more is sent, and the connection is free."""
    client, seat = bench.client(wire, settings={"max_connections": 1})
    bench.script(Step.stall(1), Step.stall(), Step.answer("Fine."))
    first, waiting, unanswered = (client.stream_response(STORY) for _ in range(3))
    assert (await anext(first)).text
    readers = [asyncio.create_task(asyncio.wait_for(anext(stream, None), 10)) for stream in (first, waiting)]
    await until(lambda: client._client.connections._waiters)
    await waiting.aclose()
    await first.aclose()
    assert await asyncio.gather(*readers) == [None, None]
    reader = asyncio.create_task(asyncio.wait_for(anext(unanswered, None), 10))
    await until(lambda: bench.provider.count == 2)
    await unanswered.aclose()
    assert await reader is None
    assert (await client.single_response("Hello.")).text == "Fine."
    assert bench.provider.count == 3, "the stream that was closed while it waited was not sent"
    assert seat.kinds == [OutcomeKind.ABANDONED, OutcomeKind.ABANDONED, OutcomeKind.COMPLETED]
    seat.check_books()


async def test_a_stream_that_was_never_read_sends_nothing(bench, wire):
    client, seat = bench.client(wire)
    async with client.stream_response(STORY):
        pass
    assert bench.provider.count == 0
    assert seat.permits == []
    assert seat.records == []


async def test_a_forgotten_stream_is_settled_and_its_connection_closed(bench, wire, until):
    client, seat = bench.client(wire)
    bench.script(Step.stall(2))
    pieces = client.stream_response(STORY)
    assert (await anext(pieces)).text
    kept = [pieces]
    del pieces
    with pytest.warns(ResourceWarning, match="async with"):
        forget(kept)
    assert seat.kinds == [OutcomeKind.ABANDONED]
    await until(lambda: bench.provider.requests[-1].cut == "client")
    seat.check_books()


async def test_a_failing_reader_leaves_nothing_behind(bench, wire, until):
    client, seat = bench.client(wire)
    bench.script(Step.stall(2))
    with pytest.raises(ZeroDivisionError):
        await fail_in(client.stream_response(STORY))
    assert seat.kinds == [OutcomeKind.ABANDONED]
    await until(lambda: bench.provider.requests[-1].cut == "client")


async def test_after_leaving_streams_the_connections_are_free(bench, wire):
    client, seat = bench.client(wire, settings={"max_connections": 1})
    for _ in range(3):
        bench.script(Step.stall(1))
        async with client.stream_response(STORY) as pieces:
            async for _ in pieces:
                break
    assert (await client.single_response("Hello.")).text
    seat.check_books()


async def test_as_many_calls_as_there_are_connections_go_at_once(bench, wire, until):
    client, _ = bench.client(wire, settings={"max_connections": 2})
    bench.script(Step.stall(), Step.stall())
    tasks = [asyncio.create_task(client.single_response("Hello.")) for _ in range(2)]
    await until(lambda: bench.provider.count == 2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b58_waiting_for_a_connection_is_not_yet_sent(bench, wire, manual, until, streamed):
    client, seat = bench.client(
        wire, clock=manual, timeout_s=30, settings={"max_connections": 1, "idle_timeout_s": 900}
    )
    bench.script(Step.stall(), Step.answer("Fine."), Step.answer("Fine."))
    first = asyncio.create_task(client.single_response(STORY))
    await until(lambda: bench.provider.count == 1)
    waiting = [asyncio.create_task(asked(client, "Hello.", streamed=streamed)) for _ in range(3)]
    await manual.advance(29)
    assert len(seat.permits) == 1, "no permit is drawn, and no time runs, before there is a connection"
    waiting.pop().cancel()
    await manual.advance(2)
    await until(first.done)
    with pytest.raises(TransientUpstreamError):
        await first
    for task in waiting:
        assert (await task).text == "Fine."
    assert seat.kinds == [OutcomeKind.UNKNOWN, OutcomeKind.COMPLETED, OutcomeKind.COMPLETED]
    assert client._client.connections._value == 1


# Out of time.


@pytest.mark.parametrize("mode", ["whole", "streamed"])
async def test_b13_an_attempt_has_a_time(bench, wire, manual, until, mode):
    client, seat = bench.client(wire, clock=manual, timeout_s=30, settings={"idle_timeout_s": 1_000})
    bench.script(Step.stall())
    task = asyncio.create_task(
        client.single_response(STORY) if mode == "whole" else client.stream_response(STORY).finish()
    )
    await until(lambda: bench.provider.count == 1)
    await manual.advance(29)
    assert not task.done()
    await manual.advance(1.5)
    await until(task.done)
    with pytest.raises(TransientUpstreamError) as caught:
        await task
    assert caught.value.provider_code == "attempt_timeout"
    assert caught.value.retryable
    assert task.cancelling() == 0
    assert seat.kinds == [OutcomeKind.UNKNOWN], "the reservation stays: it may have been served"
    assert seat.last.usage == Usage(input_tokens=50, output_tokens=1_000, estimated=True)
    assert seat.last.latency_s == 30
    await until(lambda: bench.provider.requests[-1].cut == "client")
    seat.check_books()


async def test_b35_silence_between_events_is_bounded(bench, wire, manual, until):
    client, seat = bench.client(wire, clock=manual, settings={"idle_timeout_s": 10, "timeout_s": 600})
    bench.script(Step.stall(2))
    seen: list[str] = []

    async def consume() -> None:
        async for piece in client.stream_response(STORY):
            seen.append(piece.text)

    task = asyncio.create_task(consume())
    await until(lambda: len(seen) == 2)
    await manual.advance(25)
    await until(task.done)
    with pytest.raises(StreamInterruptedError) as caught:
        await task
    assert caught.value.provider_code == "idle_timeout"
    assert caught.value.partial == "".join(seen)
    assert seat.kinds == [OutcomeKind.UNKNOWN]
    await until(lambda: bench.provider.requests[-1].cut == "client")
    seat.check_books()


async def test_b35_silence_before_the_first_event_is_bounded(bench, wire, manual, until):
    client, seat = bench.client(wire, clock=manual, settings={"idle_timeout_s": 10, "timeout_s": 600})
    bench.script(Step.stall(0))
    task = asyncio.create_task(client.stream_response(STORY).finish())
    await started(until, bench.provider)
    await manual.advance(25)
    await until(task.done)
    with pytest.raises(TransientUpstreamError) as caught:
        await task
    assert type(caught.value) is TransientUpstreamError
    assert seat.kinds == [OutcomeKind.UNKNOWN]


@pytest.mark.parametrize("keepalive", ["comment", "empty", "ping"])
async def test_b35_keepalives_hold_off_the_idle_limit_but_not_the_total(bench, wire, manual, until, keepalive):
    client, seat = bench.client(wire, clock=manual, settings={"idle_timeout_s": 10, "timeout_s": 40})
    bench.script(Step.stall(1, keepalive=keepalive, keepalive_s=0.002))
    seen: list[str] = []

    async def consume() -> None:
        async with client.stream_response(STORY) as pieces:
            async for piece in pieces:
                seen.append(piece.text)

    task = asyncio.create_task(consume())
    await until(lambda: seen)
    for _ in range(7):  # 35 s, never 10 s without a sign of life
        await manual.advance(5)
        for _ in range(5):
            await asyncio.sleep(0.002)
    assert not task.done()
    await manual.advance(10)
    await until(task.done)
    with pytest.raises((TransientUpstreamError, StreamInterruptedError)) as caught:
        await task
    assert caught.value.provider_code == "attempt_timeout"
    seat.check_books()


async def test_b35_a_slow_reader_is_not_a_silent_provider(bench, wire, manual, until):
    client, seat = bench.client(wire, clock=manual, settings={"idle_timeout_s": 10, "timeout_s": 600})
    bench.script(Step(name="pieces", reply=Answer(text="One two three.", pieces=("One ", "two ", "three."))))
    async with client.stream_response(STORY) as pieces:
        async for _ in pieces:
            await manual.advance(100)
    assert pieces.response.text == "One two three."
    assert seat.kinds == [OutcomeKind.COMPLETED]


async def test_an_attempt_that_runs_out_while_nobody_reads(bench, wire, manual, until):
    client, seat = bench.client(wire, clock=manual, settings={"idle_timeout_s": 10, "timeout_s": 60})
    bench.script(Step.stall(2))
    pieces = client.stream_response(STORY)
    await anext(pieces)
    await manual.advance(61)
    assert seat.kinds == [OutcomeKind.UNKNOWN], "settled at once, not when somebody comes to read"
    await until(lambda: bench.provider.requests[-1].cut == "client")
    with pytest.raises(StreamInterruptedError):
        await anext(pieces)
    with pytest.raises(StopAsyncIteration):
        await anext(pieces)
    seat.check_books()


async def test_a_safe_stream_out_of_time_may_run_again(bench, wire, manual, until):
    client, _seat = bench.client(wire, clock=manual, settings={"idle_timeout_s": 10, "timeout_s": 60})
    bench.script(Step.stall(2))
    task = asyncio.create_task(client.stream_response(STORY, mode=StreamingMode.SAFE).finish())
    await until(lambda: bench.provider.requests and bench.provider.requests[-1].pieces >= 2)
    await asyncio.sleep(0.01)
    await manual.advance(25)
    await until(task.done)
    with pytest.raises(TransientUpstreamError) as caught:
        await task
    assert caught.value.retryable


# The watch itself.


def test_verdict_is_pure():
    def at(now_s: float, idle_s: float | None = 10.0) -> object:
        return verdict(now_s, started_s=100.0, alive_s=105.0, total_s=60.0, idle_s=idle_s)

    assert at(106) == 115
    assert at(106, None) == 160
    assert isinstance(at(115), AttemptTimeout)
    assert at(115).idle  # type: ignore[attr-defined]
    assert not at(160, None).idle  # type: ignore[attr-defined,union-attr]


async def test_silence_counts_from_when_somebody_waits(manual: ManualClock):
    watch = Watch(manual, total_s=1_000, idle_s=10)
    await manual.advance(25)

    async def wait() -> None:
        with watch:
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await manual.advance(9)
    assert not task.done()
    await manual.advance(1)
    assert task.done()
    with pytest.raises(AttemptTimeout):
        await task


async def test_a_cancel_from_outside_is_not_mistaken_for_the_watch(manual: ManualClock):
    async def wait() -> None:
        with Watch(manual, total_s=10):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await manual.settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    both = asyncio.create_task(wait())
    await manual.settle()
    manual.run_due(11)
    both.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both
