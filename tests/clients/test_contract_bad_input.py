"""What is wrong with a request is said before it is sent, by name, on every wire; and no key is ever part of what is
said."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from interlock.clients.conversation import Conversation, DocumentBlock, ImageBlock, ToolResultBlock, ToolUseBlock
from interlock.clients.options import CallOptions, Tool
from interlock.clients.simulator import Step
from interlock.errors import CredentialError, InvalidRequestError, MalformedResponseError, TransientUpstreamError

from .conftest import SECRET, asked
from .test_secrets import everything_in

HALF = "\ud83d"


def called(arguments: dict[str, Any], content: str = "It is.") -> Conversation:
    """A conversation whose model called a tool with these arguments."""
    turned = Conversation.of("Look.").assistant([ToolUseBlock(id="t1", name="look", input=arguments)])
    return turned.user([ToolResultBlock(tool_use_id="t1", content=content)])


LOOK = Tool("look", "Look at it.")
BAD = {
    "surrogate-in-a-call": (called({"deep": [{"in": HALF}]}), {}, "half a character"),
    "surrogate-in-a-key": (called({HALF: 1}), {}, "half a character"),
    "surrogate-in-a-result": (called({}, HALF), {}, "half a character .*turn 3 .ToolResultBlock"),
    "object-in-a-call": (called({"at": object()}), {}, "cannot be written as JSON.*object"),
    "nan-in-a-call": (called({"at": float("nan")}), {}, "cannot be written as JSON"),
    "object-in-a-tool": ("x", {"options": CallOptions(tools=(Tool("a", "", {"b": object()}),))}, "written as JSON"),
    "surrogate-in-a-stop": ("x", {"options": CallOptions(stop=(HALF,))}, "half a character .*options|take 'stop'"),
    "nan-temperature": ("x", {"options": CallOptions(temperature=float("nan"))}, "temperature must lie"),
    "surrogate-in-an-address": (
        Conversation.of([ImageBlock(url=f"https://a.test/{HALF}")]),
        {},
        "turn 1 .ImageBlock|url",
    ),
    "no-tool-name": ("x", {"options": CallOptions(tools=(Tool(""),))}, "a tool needs a name"),
    "neither-data-nor-url": (Conversation.of([ImageBlock()]), {}, "needs either data or a url"),
    "both": (Conversation.of([DocumentBlock(data=b"x", url="https://a.test/b")]), {}, "needs either data or a url"),
}


@pytest.mark.parametrize(("conversation", "call", "said"), BAD.values(), ids=BAD.keys())
async def test_it_never_leaves_and_is_named(bench, wire, conversation, call, said):
    client, seat = bench.client(wire)
    for streamed in (False, True):
        with pytest.raises(InvalidRequestError, match=said) as caught:
            await asked(client, conversation, streamed=streamed, **call)
        assert caught.value.sent is False
    assert bench.provider.count == 0
    assert seat.permits == []


async def test_white_space_around_a_key_is_no_part_of_it(bench, wire):
    bench.environ = {name: f" {value}\t\r\n" for name, value in bench.environ.items()}
    client, _ = bench.client(wire)
    assert (await client.single_response("Hello.")).text


@pytest.mark.parametrize("wrong", ["\nX-Evil: 1", "\x00", "“", HALF], ids=["line", "nul", "quote", "half"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_key_that_no_header_can_carry_is_refused_unseen(bench, wire, caplog, wrong, streamed):
    key = f"{SECRET[:9]}{wrong}{SECRET[9:]}"
    bench.environ = {"TEST_KEY": key, "TEST_AWS_ACCESS_KEY_ID": f"AKIA{wrong}TEST", "TEST_AWS_SECRET_ACCESS_KEY": key}
    client, seat = bench.client(wire)
    with caplog.at_level(logging.DEBUG), pytest.raises(CredentialError) as caught:
        await asked(client, "Hello.", streamed=streamed)
    assert caught.value.sent is False
    assert not caught.value.retryable
    shown = everything_in(caught.value) + caplog.text
    assert SECRET[9:] not in shown
    assert SECRET[:9] not in shown
    assert bench.provider.count == 0
    assert seat.records == []


ADDRESSES = {
    "nonsense": "neither http:// nor",
    "ftp://127.0.0.1/x": "neither http:// nor",
    "http://": "no host",
    "http://[::1": "no address",
    "http://127.0.0.1:99999/": "no address",
    "http://127.0.0.1:8080\n/v1": "a character",
    "http://\ud83d.test/": "a character",
    "http://user:hunter2secret@": "no host",
    "http://user:hunter2secret@127.0.0.1/": "a user or a password",
    "http://127.0.0.1/?key=hunter2secret": "a query",
}


@pytest.mark.parametrize(("url", "said"), ADDRESSES.items(), ids=range(len(ADDRESSES)))
async def test_an_address_that_is_none_is_named(bench, wire, url, said):
    client, seat = bench.client(wire, base_url=url)
    for streamed in (False, True):
        with pytest.raises(InvalidRequestError, match=f"base_url.*{said}") as caught:
            await asked(client, "Hello.", streamed=streamed)
        assert caught.value.sent is False
        shown = everything_in(caught.value)
        assert SECRET not in shown
        assert "hunter2" not in shown
        assert caught.value.__cause__ is None
    assert seat.permits == []


async def test_vertex_names_a_wrong_address_too(bench, wires):
    client, _ = bench.client(wires["vertex"], base_url="nonsense")
    with pytest.raises(InvalidRequestError, match="base_url 'nonsense' of gemini"):
        await client.single_response("Hello.")


async def test_b63_an_address_that_answers_html_is_told_with_its_host(bench, wire, caplog):
    client, seat = bench.client(wire)
    bench.script(Step.html(200, f"<title>Login {SECRET}</title>"))
    with caplog.at_level(logging.DEBUG), pytest.raises(TransientUpstreamError) as caught:
        await client.single_response("Hello.")
    assert type(caught.value) is MalformedResponseError
    assert "127.0.0.1" in str(caught.value)
    assert SECRET not in everything_in(caught.value) + caplog.text + repr(seat.records)
