"""What every wire must do: steps, faults, limits and keys, as raw HTTP sees them. The wires are a table in conftest.py:
one more is one entry there.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from interlock.clients.simulator import Framing, PublishedLimits, SimulatedProvider, Step


async def read_into(got: bytearray, response: httpx2.Response) -> None:
    async for data in response.aiter_bytes():
        got += data


async def test_a_stream_says_what_a_whole_answer_says(
    wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    whole = await wire.post(http)
    events = await wire.stream(http)
    assert wire.dig(whole.json(), wire.said) == wire.text(events) == wire.said_text
    assert wire.is_whole(events)
    one, other = provider.requests
    assert (one.model, one.streamed, one.text) == ("m", False, wire.asked_text)
    assert (other.model, other.streamed, other.text) == ("m", True, wire.asked_text)
    assert one.input_tokens == other.input_tokens == (len(wire.asked_text) + 3) // 4
    assert one.output_tokens == other.output_tokens == (len(wire.said_text) + 3) // 4
    assert {seen.wire for seen in provider.requests} == {wire.name}


async def test_b48_rate_limited(wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(Step.rate_limited(133107), Step.rate_limited(None), Step.rate_limited(0.5, headers={"x-y": "z"}))
    first, second, third = [await wire.post(http) for _ in range(3)]
    assert [each.status_code for each in (first, second, third)] == [429] * 3
    assert [each.headers.get("retry-after") for each in (first, second, third)] == (
        ["133107", None, "0.5"] if wire.hint else [None] * 3
    )
    assert third.headers["x-y"] == "z"
    assert wire.word_of(first) == wire.limited
    assert provider.requests[0].step == "rate_limited"


async def test_b11_busy_broken_and_out_of_money(
    wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    provider.script(Step.overloaded(), Step.quota(), Step.server_error(), Step.overloaded("Full."))
    for status, word in (wire.busy, wire.poor):
        response = await wire.post(http, stream=True)  # a stream is refused like anything else
        assert (response.status_code, wire.word_of(response)) == (status, word)
    assert (await wire.post(http)).status_code == 500
    assert "Full." in (await wire.post(http)).text


async def test_any_status(wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(
        Step.status(418),
        Step.status(402, {"error": {"message": "pay"}}, {"x-should-retry": "false"}),
        Step.status(502, "<h1>Bad gateway</h1>", content_type="text/html"),
        Step.status(503, b"\x00\x01"),
        Step.status(403, message="Not for you."),
    )
    own, json_body, page, data, said = [await wire.post(http) for _ in range(5)]
    assert (own.status_code, own.headers["content-type"]) == (418, "application/json")
    assert "as scripted" in own.text or "The server had an error" in own.text
    assert (json_body.status_code, json_body.json()) == (402, {"error": {"message": "pay"}})
    assert json_body.headers["x-should-retry"] == "false"
    assert (page.status_code, page.headers["content-type"], page.text) == (502, "text/html", "<h1>Bad gateway</h1>")
    assert data.content == b"\x00\x01"
    assert said.status_code == 403
    assert "Not for you." in said.text


async def test_b63_bodies_that_are_no_answer(wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    gzip_broken = Step.body(b"not gzip", "application/json", headers={"content-encoding": "gzip"})
    provider.script(Step.html(), Step.body([]), Step.body(None), Step.body('{"a": ', "application/json"))
    provider.script(Step.status(204), gzip_broken)
    page, empty, null, torn, nothing = [await wire.post(http) for _ in range(5)]
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<h1>Sign in</h1>" in page.text
    assert (empty.json(), null.json(), torn.text) == ([], None, '{"a": ')
    assert (nothing.status_code, nothing.content) == (204, b"")
    with pytest.raises(httpx2.DecodingError):
        await wire.post(http)


async def test_b01_an_error_inside_a_stream(wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(Step.stream_error(after_pieces=None), Step.stream_error("overloaded_error", "Boom", after_pieces=2))
    where, word = wire.struck
    alone = await wire.stream(http)
    assert [wire.dig(event, where) for event in alone] == [word]
    later = await wire.stream(http)
    assert wire.dig(later[-1], where) == word
    assert "Boom" in str(later[-1])
    assert wire.text(later[:-1]) == wire.said_text[:32]
    assert not wire.is_whole(later)
    assert provider.requests[1].pieces == 2


async def test_a_stream_error_of_an_unstreamed_request_is_a_status(
    wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    provider.script(Step.stream_error("overloaded_error"), Step.stream_error("rate_limit_error"))
    assert (await wire.post(http)).status_code == wire.busy[0]
    limited = await wire.post(http)
    assert limited.status_code == 429


async def test_b02_a_stream_that_just_ends(wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(Step.cut(None), Step.cut(0), Step.cut(1), Step.cut(10_000))
    none, empty, one, all_but_the_end = [await wire.stream(http) for _ in range(4)]
    assert none == []
    assert wire.text(empty) == ""
    assert wire.text(one) == wire.asked_text[:16]
    assert wire.text(all_but_the_end) == wire.said_text
    assert not any(wire.is_whole(events) for events in (none, empty, one, all_but_the_end))
    assert not any("finish_reason" in str(event) and "'stop'" in str(event) for event in all_but_the_end)
    assert [seen.cut for seen in provider.requests] == ["clean"] * 4


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_b13_a_connection_that_breaks_in_mid_stream(
    wire: Any, how: Any, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    error = httpx2.ReadError if how == "reset" else httpx2.RemoteProtocolError
    path, body = wire.asked(stream=True)
    for after_pieces in (0, 2):
        provider.script(Step.cut(after_pieces, how))
        got = bytearray()
        async with http.stream("POST", path, json=body) as response:
            with pytest.raises(error):
                await read_into(got, response)
        events = wire.events(bytes(got), response.headers["content-type"])
        assert wire.text(events) == wire.said_text[: 16 * after_pieces]
    assert [(seen.cut, seen.status) for seen in provider.requests] == [(how, 200)] * 2


async def test_b21_a_connection_that_breaks_before_any_answer(
    wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    for stream in (False, True):
        provider.script(Step.cut(None, "reset"), Step.cut(None, "close"))
        with pytest.raises(httpx2.ReadError):
            await wire.post(http, stream=stream)
        with pytest.raises(httpx2.RemoteProtocolError):
            await wire.post(http, stream=stream)
    assert [(seen.cut, seen.status) for seen in provider.requests] == [("reset", None), ("close", None)] * 2
    assert all(seen.input_tokens > 0 for seen in provider.requests)  # it was read, and may be billed


async def test_an_unstreamed_answer_is_cut_in_the_middle(
    wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    provider.script(Step.cut(0), Step.cut(None), Step.cut(0, "close"), Step.cut(0, "reset"))
    half = await wire.post(http)
    assert half.status_code == 200
    with pytest.raises(json.JSONDecodeError):
        half.json()
    assert (await wire.post(http)).content == b""
    for error in (httpx2.RemoteProtocolError, httpx2.ReadError):
        with pytest.raises(error):
            await wire.post(http)


async def test_slow_waits_before_the_answer_and_between_pieces(
    wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider, time: Any
) -> None:
    provider.script(Step.slow(3, reply="It came."), Step.slow(2, between_pieces_s=0.5))
    assert "It came." in (await wire.post(http)).text
    assert wire.is_whole(await wire.stream(http))
    assert time.slept[:2] == [3, 2]
    assert set(time.slept[2:]) == {0.5}
    assert len(time.slept[2:]) == provider.requests[1].pieces
    assert provider.requests[0].finished_at_s == provider.requests[0].at_s + 3


async def test_a_stall_lasts_until_the_client_leaves(
    wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    provider.script(Step.stall(), Step.stall(), Step.stall(1))
    for stream in (False, True):
        path, body = wire.asked(stream=stream)
        with pytest.raises(httpx2.ReadTimeout):
            await http.post(path, json=body, timeout=httpx2.Timeout(5, read=0.02))
    path, body = wire.asked(stream=True)
    async with http.stream("POST", path, json=body) as response:
        got = b""
        async for data in response.aiter_bytes():
            got += data
            if wire.text(wire.events(got, response.headers["content-type"])) == wire.asked_text[:16]:
                break
    await provider.idle()
    assert [(seen.cut, seen.status, seen.pieces) for seen in provider.requests] == [
        ("client", None, 0),
        ("client", None, 0),
        ("client", 200, 1),
    ]


@pytest.mark.parametrize("keepalive", ["ping", "comment", "empty"])
async def test_b35_a_stall_may_keep_the_connection_alive(
    wire: Any, keepalive: Any, http: httpx2.AsyncClient, provider: SimulatedProvider, time: Any
) -> None:
    provider.script(Step.stall(1, keepalive_s=0.05, keepalive=keepalive))
    path, body = wire.asked(stream=True)
    got, size = b"", 0
    async with http.stream("POST", path, json=body) as response:
        async for data in response.aiter_bytes():
            got += data
            text = wire.text(wire.events(got, response.headers["content-type"]))
            size = size or (len(got) if text == wire.asked_text[:16] else 0)
            if len(time.slept) > 5:
                break
    await provider.idle()
    assert len(got) > size > 0  # something came that says nothing
    assert text == wire.asked_text[:16]
    assert set(time.slept) == {0.05}
    assert provider.requests[0].cut == "client"


async def test_b12_a_cut_off_answer(wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.script(Step.truncated('{"a": [1, 2'), Step.truncated())
    given, halved = (await wire.post(http)).json(), (await wire.post(http)).json()
    assert [wire.dig(each, wire.stop) for each in (given, halved)] == [wire.cut] * 2
    assert wire.dig(given, wire.said) == '{"a": [1, 2'
    assert wire.said_text.startswith(wire.dig(halved, wire.said))
    assert [seen.output_tokens for seen in provider.requests] == [200, 200]
    provider.script(Step.truncated('{"a": [1, 2'))
    streamed = await wire.stream(http)
    assert wire.cut in str(streamed)
    assert wire.text(streamed) == '{"a": [1, 2'


async def test_b15_a_refusal(wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    provider.always(Step.refusal(None, "It could do harm."))
    where, what = wire.refused
    response = await wire.post(http)
    assert wire.dig(response.json(), where) == what
    assert "It could do harm." in response.text
    assert what[:16] in str(await wire.stream(http))


async def test_a_json_answer_is_given_where_the_request_wants_it(
    wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider
) -> None:
    provider.always(Step.answer(json={"a": 1}))
    assert wire.dig((await wire.post(http)).json(), wire.said) == '{"a": 1}'
    called = wire.dig((await wire.post(http, **wire.tool)).json(), wire.called)
    assert called in ({"a": 1}, '{"a": 1}')
    streamed = str(await wire.stream(http, **wire.tool)).replace('"', "'")
    assert "'f'" in streamed
    assert "{'a': 1}" in streamed


async def test_exact_events_may_break_off(wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    errors: dict[Any, Any] = {
        "close": httpx2.RemoteProtocolError,
        "reset": httpx2.ReadError,
        "stall": httpx2.ReadTimeout,
    }
    path, body = wire.asked(stream=True)
    for ending, error in errors.items():
        provider.script(Step.events({"type": {"a": 1}}, b"raw", ending=ending))
        got = bytearray()
        async with http.stream(
            "POST", path, json=body, timeout=httpx2.Timeout(5, read=1 if ending == "stall" else 5)
        ) as response:
            with pytest.raises(error):
                await read_into(got, response)
        assert got.endswith(b"raw")
        events = wire.events(bytes(got[:-3]), response.headers["content-type"])
        assert wire.dig(events[0], "type.a") == 1
    await provider.idle()
    assert [seen.cut for seen in provider.requests] == ["close", "reset", "client"]


async def test_b28_bytes_may_be_cut_anywhere(wire: Any, http: httpx2.AsyncClient, provider: SimulatedProvider) -> None:
    text = "a\u2028b\u0085c\u2029 漢字 😀 end"
    provider.always(Step.answer(pieces=(text[:5], text[5:]), framing=Framing(bytes_per_write=5)))
    assert wire.text(await wire.stream(http)) == text
    provider.always(Step.answer("x", framing=Framing(final_blank_line=False, bom=False, comments=True)))
    assert wire.text(await wire.stream(http)) == "x"


async def test_limits_are_kept_and_said_in_its_own_words(wire: Any, time: Any) -> None:
    provider = SimulatedProvider(limits=PublishedLimits(rpm=1), now=time.now)
    transport = httpx2.ASGITransport(app=provider.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://x", headers={"x-api-key": "k"}) as client:
        assert (await wire.post(client)).status_code == 200
        refused = await wire.post(client)
        assert (refused.status_code, wire.word_of(refused)) == (429, wire.limited)
        assert refused.headers.get("retry-after") == ("60" if wire.hint else None)
        time.now_s += 60
        assert (await wire.post(client)).status_code == 200
    assert provider.requests[1].refused_by == "requests"


async def test_input_that_is_too_long_is_refused(wire: Any) -> None:
    provider = SimulatedProvider(context_window=10)
    transport = httpx2.ASGITransport(app=provider.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://x", headers={"x-api-key": "k"}) as client:
        refused = await wire.post(client)
    assert refused.status_code == 400
    words = ("too long", "maximum context length", "context window", "exceeds the maximum number of tokens")
    assert any(word in refused.text for word in words)


async def test_keys_are_asked_for_and_never_kept(wire: Any) -> None:
    provider = SimulatedProvider(keys=["secret-1", "AKIDSECRET"], models=["m"])
    transport = httpx2.ASGITransport(app=provider.app)
    signed = "AWS4-HMAC-SHA256 Credential=AKIDSECRET/20261130/eu-west-1/bedrock/aws4_request, Signature=secret-1"
    good = [{"authorization": "Bearer secret-1"}, {"x-api-key": "secret-1"}, {"x-goog-api-key": "secret-1"}]
    good.append({"authorization": signed, "x-amz-security-token": "secret-1"})
    async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
        path, body = wire.asked(stream=False)
        assert [(await client.post(path, json=body, headers=each)).status_code for each in good] == [200] * 4
        for bad in ({}, {"authorization": "Bearer other"}):
            refused = await client.post(path, json=body, headers=bad)
            assert refused.status_code in (400, 401, 403)
            assert wire.word_of(refused) != "None"
    assert "secret-1" not in repr(provider.requests)
    assert "AKIDSECRET" not in repr(provider.requests)
    assert [seen.signed_for for seen in provider.requests[:4]] == [None, None, None, "eu-west-1/bedrock"]
