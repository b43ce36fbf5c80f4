"""The server's life: it stops without waiting for anybody, leaves nothing behind, and logs who left early."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import threading
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, AsyncAnthropic

from interlock.clients.simulator import PublishedLimits, SimulatedProvider, Step
from interlock.clients.simulator.connection import TRANSPORT
from interlock.clients.simulator.joining import JoiningTransport
from interlock.clients.simulator.server import LoopbackServer

BODY: Any = {"model": "m", "max_tokens": 200, "messages": [{"role": "user", "content": "The parcel is late. Hurry."}]}
PATH = "/v1/messages"
KEY = {"x-api-key": "k"}


def port_of(provider: SimulatedProvider) -> int:
    return int(provider.base_url.rsplit(":", 1)[1])


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def until(true: Any) -> None:
    """Turn the loop until something is so."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("step", "stream"),
    [
        (Step.stall(), False),
        (Step.stall(), True),
        (Step.stall(1), True),
        (Step.slow(1e6), False),
        (Step.slow(1e6), True),
    ],
)
async def test_stopping_waits_for_nobody(
    step: Step, stream: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stalled answer, or one that sleeps for ever, ends with the server; nothing is left running or open."""
    monkeypatch.setattr("interlock.clients.simulator.server._LEAVE_S", 3_600.0)
    before = asyncio.all_tasks()
    async with asyncio.timeout(60), httpx2.AsyncClient(headers=KEY) as client:
        async with SimulatedProvider() as provider:
            provider.script(step)
            port = port_of(provider)
            asked = asyncio.ensure_future(client.post(provider.base_url + PATH, json=BODY | {"stream": stream}))
            await until(lambda: provider.requests and provider.requests[0].step is not None)
        with pytest.raises(httpx2.TransportError):
            await asked
        assert provider.requests[0].cut == "client"
        assert provider.requests[0].finished_at_s is not None
    assert asyncio.all_tasks() == before
    assert not is_open(port)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_stopping_does_not_wait_for_a_connection_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.clients.simulator.server._LEAVE_S", 3_600.0)
    async with asyncio.timeout(60), httpx2.AsyncClient(headers=KEY) as client:
        for _ in range(8):
            async with SimulatedProvider() as provider:
                assert (await client.post(provider.base_url + PATH, json=BODY)).status_code == 200
    gc.collect()  # a socket left open would warn here, and warnings are errors


async def test_cuts_leave_nothing_in_the_error_log(caplog: pytest.LogCaptureFixture) -> None:
    async with SimulatedProvider() as provider, httpx2.AsyncClient(headers=KEY) as client:
        for how in ("clean", "close", "reset"):
            for after_pieces in (None, 1):
                for stream in (False, True):
                    provider.script(Step.cut(after_pieces, how))
                    try:
                        await client.post(provider.base_url + PATH, json=BODY | {"stream": stream})
                    except httpx2.TransportError:
                        assert how != "clean"
    assert len(provider.requests) == 12
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_b17_a_client_that_leaves_a_stream_has_used_what_it_saw() -> None:
    limits = PublishedLimits(output_tpm=6_000)
    async with (
        SimulatedProvider(limits=limits, now=lambda: 0.0) as provider,
        AsyncAnthropic(api_key="k", base_url=provider.anthropic_url, max_retries=0) as client,
    ):
        provider.script(Step.stall(2))

        async def read() -> None:
            async with client.messages.stream(**BODY) as stream:
                async for _ in stream:
                    pass

        reading = asyncio.ensure_future(read())
        await until(lambda: provider.requests and provider.requests[0].pieces == 2)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await provider.idle()
        seen = provider.requests[0]
        assert (seen.cut, seen.status) == ("client", 200)
        raw = await client.messages.with_raw_response.create(**BODY)
        left = int(raw.headers["anthropic-ratelimit-output-tokens-remaining"])
        whole = provider.requests[1].output_tokens
        assert 0 < seen.output_tokens < whole
        assert left == 6_000 - seen.output_tokens - whole


async def test_a_client_that_leaves_before_its_answer_is_logged(time: Any) -> None:
    time.holds = True
    async with SimulatedProvider(latency_s=5, now=time.now, sleep=time.sleep) as provider:
        async with httpx2.AsyncClient(headers=KEY) as client:
            asked = asyncio.ensure_future(client.post(provider.base_url + PATH, json=BODY))
            await until(lambda: time.slept == [5])
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
        await provider.idle()
        assert (provider.requests[0].cut, provider.requests[0].status) == ("client", None)
        assert provider.requests[0].output_tokens == 0


async def test_latency_and_speed_are_as_set(time: Any) -> None:
    latency = {"a": 1.5, "b": 0.0}
    provider = SimulatedProvider(
        latency_s=lambda request: latency[request.text],
        tokens_per_s=10,
        answer=lambda _: "x" * 400,
        now=time.now,
        sleep=time.sleep,
    )
    async with provider, httpx2.AsyncClient(headers=KEY, base_url=provider.base_url) as client:
        for text, stream, slept in (("a", False, 11.5), ("b", True, 10.0)):
            began = time.now_s
            messages = [{"role": "user", "content": text}]
            await client.post(PATH, json=BODY | {"messages": messages, "stream": stream})
            assert time.now_s - began == pytest.approx(slept)


def test_in_a_thread_of_its_own() -> None:
    threads = threading.active_count()
    provider = SimulatedProvider()
    for _ in range(2):  # it may serve again
        with (
            provider.in_thread() as serving,
            Anthropic(api_key="k", base_url=serving.anthropic_url, max_retries=0) as client,
        ):
            assert serving is provider
            assert client.messages.create(**BODY).stop_reason == "end_turn"
            provider.script(Step.stall())
            port = port_of(provider)
            with pytest.raises(httpx2.ReadTimeout):
                httpx2.post(f"{provider.base_url}{PATH}", json=BODY, headers=KEY, timeout=0.05)
        assert threading.active_count() == threads
        assert not is_open(port)
    assert provider.count == 4
    gc.collect()


async def test_a_thread_serves_a_loop_that_is_busy_elsewhere() -> None:
    with SimulatedProvider().in_thread() as provider:
        async with AsyncAnthropic(api_key="k", base_url=provider.anthropic_url, max_retries=0) as client:
            found = await asyncio.gather(*(client.messages.create(**BODY) for _ in range(20)))
        await provider.idle()
    assert len({message.id for message in found}) == 20
    assert provider.count == 20


async def test_it_serves_once_at_a_time_and_has_a_url_only_then() -> None:
    provider = SimulatedProvider()
    with pytest.raises(RuntimeError, match="not serving"):
        _ = provider.base_url
    async with provider:
        assert provider.openai_url == f"{provider.anthropic_url}/v1"
        with pytest.raises(RuntimeError, match="already"):
            await provider.__aenter__()
        with pytest.raises(RuntimeError, match="already"), provider.in_thread():
            pass
        assert is_open(port_of(provider))
    with pytest.raises(RuntimeError, match="not serving"):
        _ = provider.base_url
    async with provider:
        assert is_open(port_of(provider))


async def test_a_problem_at_the_start_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: LoopbackServer) -> None:
        raise OSError("no socket")

    monkeypatch.setattr(LoopbackServer, "start", fail)
    provider = SimulatedProvider()
    with pytest.raises(OSError, match="no socket"):
        async with provider:
            pass
    with pytest.raises(OSError, match="no socket"), provider.in_thread():
        pass
    with pytest.raises(RuntimeError, match="not serving"):
        _ = provider.base_url


async def test_answers_are_sent_at_once() -> None:
    """Nagle's algorithm would hold every answer for 40 ms."""
    found: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raw = scope["state"][TRANSPORT].get_extra_info("socket")
        found.append(raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    server = LoopbackServer(app)
    await server.start()
    async with httpx2.AsyncClient() as client:
        await client.get(f"http://127.0.0.1:{server.port}/")
    await server.stop()
    await server.stop()  # twice is once
    assert found
    assert found[0]


async def test_the_app_alone_needs_no_socket() -> None:
    provider = SimulatedProvider()
    provider.script(Step.answer("Hello."), Step.cut(0, "reset"))
    transport = httpx2.ASGITransport(app=provider.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://x", headers=KEY) as client:
        assert (await client.post(PATH, json=BODY)).json()["content"][0]["text"] == "Hello."
        with pytest.raises(ConnectionResetError):
            await client.post(PATH, json=BODY)
    assert provider.requests[1].cut == "reset"


async def test_lifespan_and_websockets() -> None:
    app = SimulatedProvider().app
    incoming = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(incoming)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    with pytest.raises(RuntimeError, match="websocket"):
        await app({"type": "websocket"}, receive, send)


async def test_a_long_body_arrives_in_parts_and_the_log_keeps_what_it_is_told() -> None:
    async with SimulatedProvider(keep_requests=2) as provider, httpx2.AsyncClient(headers=KEY) as client:
        for size in (1, 10, 400_000):
            messages = [{"role": "user", "content": "word" * size}]
            response = await client.post(provider.base_url + PATH, json=BODY | {"messages": messages})
            assert response.json()["usage"]["input_tokens"] == size
    assert [seen.input_tokens for seen in provider.requests] == [10, 400_000]
    assert provider.count == 3


@pytest.mark.parametrize("setting", [{"serves": 0}, {"serves": 1.5}, {"tokens_per_s": 0}])
def test_settings_without_sense_are_refused(setting: Any) -> None:
    with pytest.raises(ValueError, match=r"serves|tokens_per_s"):
        SimulatedProvider(**setting)


class _Socket(asyncio.Transport):
    """A transport that keeps what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Any] = []

    def write(self, data: Any) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append("closed")

    def abort(self) -> None:
        self.done.append("aborted")

    def is_closing(self) -> bool:
        return "closed" in self.done


async def test_what_is_written_in_one_turn_goes_out_as_one() -> None:
    inner = _Socket()
    transport = JoiningTransport(inner)
    transport.write(b"head ")
    transport.write(b"body")
    assert inner.done == []
    await asyncio.sleep(0)
    transport.write(b"more")
    await asyncio.sleep(0)
    transport.write(b"last")
    assert not transport.is_closing()
    transport.close()
    transport.abort()
    await asyncio.sleep(0)
    assert inner.done == [b"head body", b"more", b"last", "closed", "aborted"]
    assert transport.is_closing()
