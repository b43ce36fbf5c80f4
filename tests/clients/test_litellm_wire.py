"""What LiteLLM must not do on its way, what of it is not believed, and what it makes of our requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from typing import Any

import pytest
from pydantic import BaseModel

from interlock.admission.outcome import Dimension, OutcomeKind
from interlock.catalog.usage import Usage
from interlock.clients.conversation import Conversation, TextBlock, ToolResultBlock
from interlock.clients.options import CallOptions, Tool
from interlock.clients.providers import litellm_chat
from interlock.clients.simulator import PublishedLimits, Step, ToolCall
from interlock.errors import (
    CredentialError,
    InvalidRequestError,
    RateLimitedError,
    ResponseShapeError,
    StreamInterruptedError,
    TransientUpstreamError,
    UpstreamError,
)

from .conftest import SECRET, WIRES, Wire, asked
from .test_requests import CASES, GOLDEN, asking


class Counted(BaseModel):
    by_word: int


LOOK = Tool("look", "Look.", {"type": "object", "properties": {}})


@pytest.fixture
def through_openai() -> Wire:
    return next(wire for wire in WIRES if wire.id == "litellm-openai")


@pytest.fixture
def through_anthropic() -> Wire:
    return next(wire for wire in WIRES if wire.id == "litellm-anthropic")


async def test_importing_it_leaves_the_environment_as_it_was(bench, through_openai):
    before = dict(os.environ)
    client, _ = bench.client(through_openai)
    await client.single_response("Hello.")
    assert dict(os.environ) == before


@pytest.mark.parametrize(("model", "said"), [
    ("no-such-provider/x", "LLM Provider NOT provided"), ("claude", "LLM Provider NOT provided"),
])  # fmt: skip
async def test_what_litellm_itself_refuses_is_not_sent(bench, through_openai, model, said):
    client, seat = bench.client(through_openai, wire_model_id=model)
    with pytest.raises(InvalidRequestError, match=said) as caught:
        await client.single_response("Hello.")
    assert caught.value.sent is False
    assert seat.last.cost == 0
    assert bench.provider.count == 0


def chunk(content: str | None = None, finish: str | None = None, **more: Any) -> str:
    delta = {} if content is None else {"content": content}
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "served",
                       "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})  # fmt: skip


async def test_b02_an_end_that_litellm_makes_up_is_none(bench, through_openai):
    client, seat = bench.client(through_openai)
    bench.script(Step.events(chunk("Hi"), b"data: [DONE]\n\n"))
    with pytest.raises(StreamInterruptedError) as caught:
        await client.stream_response("Hello.").finish()
    assert caught.value.partial == "Hi"
    assert seat.kinds == [OutcomeKind.UNKNOWN]


async def test_b16_counts_that_litellm_makes_up_are_estimates_of_ours(bench, through_openai):
    client, _ = bench.client(through_openai, input_tokens=30)
    bench.script(Step.events(chunk("A few words here."), chunk(None, "stop"), b"data: [DONE]\n\n"))
    usage = (await client.stream_response("Hello.").finish()).usage
    assert usage.estimated
    assert usage.input_tokens == 30


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_b10_cached_token_semantics(bench, through_anthropic, streamed):
    client, _ = bench.client(through_anthropic)
    answer = {"type": "message", "role": "assistant", "model": "served", "content": [{"type": "text", "text": "Hi."}],
              "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 3,
              "cache_read_input_tokens": 70, "cache_creation_input_tokens": 20}, "id": "m"}  # fmt: skip
    if streamed:
        start = {**answer, "content": [], "stop_reason": None}
        events = [("message_start", {"message": start}),
                  ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
                  ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "Hi."}}),
                  ("content_block_stop", {"index": 0}),
                  ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
                  ("message_stop", {})]  # fmt: skip
        bench.script(Step.events(*(
            f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode() for kind, fields in events
        )))  # fmt: skip
    else:
        bench.script(Step.body(answer))
    usage = (await asked(client, "Hello.", streamed=streamed)).usage
    assert usage == Usage(
        input_tokens=5, output_tokens=3, cache_read_tokens=70, cache_write_tokens=20,
        reasoning_tokens=usage.reasoning_tokens,
    )  # fmt: skip


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_signatures_go_back_through_it(bench, through_anthropic, streamed):
    client, _ = bench.client(through_anthropic)
    question = Conversation.of("Hello.")
    bench.script(Step.answer(thinking="Hm, hm.", tool_calls=[ToolCall(name="look", input={"a": 1})]))
    answer = await asked(client, question, streamed=streamed, options=CallOptions(tools=(LOOK,)))
    assert answer.thinking == "Hm, hm."
    result = ToolResultBlock(tool_use_id=answer.tool_calls[0].id, content="seen")
    further = question.assistant(answer.blocks).user([result, TextBlock("So?")])
    await client.single_response(further, options=CallOptions(tools=(LOOK,)))
    (thinking,) = [part for part in bench.sent["messages"][1]["content"] if part["type"] == "thinking"]
    assert thinking["thinking"] == "Hm, hm."
    assert thinking["signature"]


# What is sent.

ANTHROPIC = {"wire_model_id": "anthropic/claude-sonnet-4-6"}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", ["litellm-openai", "litellm-anthropic"])
async def test_golden_wire_of_what_litellm_sends(bench, wires, way, case):
    """The body that arrives at the provider, whole and streamed, as it stands in golden/; null is what LiteLLM refuses
    to write."""
    kept = json.loads((GOLDEN / f"{way}.json").read_text(encoding="utf-8"))[case]
    sent = []
    for streamed in (False, True):
        client, conversation, call = asking(
            bench, wires[way], case, **(ANTHROPIC if way == "litellm-anthropic" else {})
        )
        bench.script(Step.answer(json={}))
        with contextlib.suppress(InvalidRequestError, ResponseShapeError):  # the provider's word is not asked here
            await asked(client, conversation, streamed=streamed, **call)
        sent.append(bench.sent if bench.provider.count else None)
    assert bench.provider.count == (0 if kept is None else 2)
    if kept is not None:
        assert sent[1].pop("stream") is True
        sent[1].pop("stream_options", None)
    assert sent[0] == sent[1] == kept


@pytest.mark.parametrize(("caching", "most"), [("marks", 4), ("none", 0), ("automatic", 0)])
async def test_at_most_four_marks_through_litellm(bench, through_anthropic, caching, most):
    client, _ = bench.client(through_anthropic, caching=caching)
    turns = Conversation.of("One.", system="Be brief.")
    for number in range(6):
        turns = turns.assistant([TextBlock("Yes.", cache=True)]).user([TextBlock(f"Part {number}.", cache=True)])
    await client.single_response(turns, options=CallOptions(cache=True, cache_ttl="1h", tools=(LOOK,)))
    assert json.dumps(bench.sent).count('"cache_control"') == most
    if most:
        parts = [part for message in bench.sent["messages"][-4:] for part in message["content"]]
        assert [part["cache_control"] for part in parts] == [{"type": "ephemeral", "ttl": "1h"}] * 4


async def test_a_mark_costs_no_request_of_its_own(bench, through_openai):
    """LiteLLM would make a cache at Google first: one more request, and a second bill."""
    client, seat = bench.client(
        through_openai, wire_model_id="gemini/gemini-2.5-pro", base_url=bench.provider.gemini_url, caching="marks"
    )
    long = TextBlock("word " * 5_000, cache=True)
    await client.single_response(Conversation.of([long, TextBlock("So?")]), options=CallOptions(cache=True))
    assert bench.provider.count == len(seat.records) == 1
    assert "cachedContent" not in json.dumps(bench.sent)


# The ways there.

#: One for each of the ways in which LiteLLM sends: its handler, the OpenAI SDK, Azure's.
ROUTES = ["deepseek/m", "hosted_vllm/m", "mistral/m", "openai/m", "perplexity/m", "lm_studio/m", "azure/m"]


def headers_of(client: Any) -> list[Any]:
    """The headers of every request that this client sends from now on, as they are."""
    seen: list[Any] = []
    client._client.ready()

    async def note(request: Any) -> None:
        seen.append(request.headers)

    http = client._client._http
    http.event_hooks = {**http.event_hooks, "request": [*http.event_hooks["request"], note]}
    return seen


@pytest.mark.parametrize("model", ROUTES)
async def test_every_way_goes_over_the_clients_own_connections(bench, through_openai, model):
    client, seat = bench.client(through_openai, wire_model_id=model, settings={"max_connections": 1})
    headers = headers_of(client)
    for streamed in (False, True, False):
        assert (await asked(client, "Hello.", streamed=streamed)).text == "Hello."
    assert bench.provider.count == len(seat.records) == len(headers) == 3
    assert len(client._client._http._transport._pool.connections) == 1
    keys = {one.get("api-key") or one["authorization"].removeprefix("Bearer ") for one in headers}
    assert keys == {SECRET}


async def test_azure_without_a_key_is_not_sent(bench, through_openai, monkeypatch):
    monkeypatch.delenv("AZURE_API_KEY", raising=False)
    client, seat = bench.client(through_openai, wire_model_id="azure/m", settings={"credential": None})
    with pytest.raises(CredentialError, match="Azure needs a credential"):
        await client.single_response("Hello.")
    assert bench.provider.count == 0
    assert seat.last.cost == 0


async def test_openais_key_and_headers_go_to_no_other_server(bench, through_openai, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"x-leak: {SECRET}")
    client, _ = bench.client(through_openai, settings={"credential": None})
    headers = headers_of(client)
    for streamed in (False, True):
        await asked(client, "Hello.", streamed=streamed)
    assert [one["authorization"] for one in headers] == ["Bearer none"] * 2
    assert not any("x-leak" in one for one in headers)


async def test_a_401_without_any_key_is_final(bench, through_anthropic):
    """Nothing was found anywhere, so nothing can be found anew."""
    client, _ = bench.client(through_anthropic, settings={"credential": None})
    await client.single_response("Hello.")
    bench.script(Step.status(401))
    with pytest.raises(CredentialError):
        await client.single_response("Hello.")


#: A model, and a variable in which LiteLLM looks for its key: one for each way of looking.
AMBIENT = {
    "anthropic/m": "ANTHROPIC_API_KEY", "azure/m": "AZURE_API_KEY", "bedrock/m": "AWS_SESSION_TOKEN",
    "deepseek/m": "DEEPSEEK_API_KEY", "gemini/m": "GEMINI_API_KEY", "gigachat/m": "GIGACHAT_ACCESS_TOKEN",
    "mistral/m": "MISTRAL_API_KEY", "ollama/m": "OLLAMA_API_KEY", "openrouter/m": "OPENROUTER_API_KEY",
    "watsonx/m": "WATSONX_TOKEN",
}  # fmt: skip


async def test_no_providers_key_goes_to_another_server(bench, through_openai, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "WATSONX_PROJECT_ID", *AMBIENT.values()):
        monkeypatch.setenv(name, SECRET)
    sent = 0
    for model in AMBIENT:
        client, seat = bench.client(through_openai, wire_model_id=model, settings={"credential": None})
        headers = headers_of(client)
        with contextlib.suppress(UpstreamError):  # not every one of these wires is answered
            await client.single_response("Hello.")
        assert seat.records
        assert SECRET not in repr([one.raw for one in headers]), model
        assert SECRET not in repr([request.path for request in bench.provider.requests]), model
        sent += len(headers)
    assert sent == len(AMBIENT) - 3, "Azure's, and those for which LiteLLM would send its own all the same"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("way", ["litellm-openai", "litellm-anthropic"])
async def test_b75_a_rotated_key_is_taken_up_after_a_401_through_litellm(bench, wires, way, streamed):
    client, _ = bench.client(wires[way])
    headers = headers_of(client)
    bench.script(Step.status(401), Step.status(401), Step.answer("Fine."))
    with pytest.raises(CredentialError):  # the key is what it was
        await asked(client, "Hello.", streamed=streamed)
    bench.environ["TEST_KEY"] = "sk-another-key-0123456789"
    with pytest.raises(TransientUpstreamError) as caught:
        await asked(client, "Hello.", streamed=streamed)
    assert caught.value.provider_code == "credential_rotated"
    assert (await asked(client, "Hello.", streamed=streamed)).text == "Fine."
    assert "sk-another-key-0123456789" in str(headers[-1].values())


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("way", ["litellm-openai", "litellm-anthropic"])
async def test_limits_are_read_from_the_providers_own_headers(bench, wires, way, streamed):
    bench.provider.publish("wire-model", PublishedLimits(rpm=2, tpm=90_000, burst_s=60))
    client, seat = bench.client(wires[way], output_tokens=100)
    for _ in range(2):
        await asked(client, "Hello.", streamed=streamed)
    with pytest.raises(RateLimitedError):
        await asked(client, "Hello.", streamed=streamed)
    for permit, left in zip(seat.permits, (1, 0, 0), strict=True):
        seen = permit.outcome.reported[Dimension.REQUESTS]
        assert (seen.limit, seen.remaining) == (2, left)
        assert seen.reset_s is not None


async def test_nothing_is_fetched_beside_the_call(bench, through_anthropic, monkeypatch):
    """A price list, a table of headers, a tokenizer: LiteLLM would get them from elsewhere, and hold up the loop."""
    import socket

    from litellm import anthropic_beta_headers_manager as table

    looked_up = []
    real = socket.getaddrinfo

    def watched(host: Any, *rest: Any, **more: Any) -> Any:
        looked_up.append(host)
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", watched)
    monkeypatch.setattr(table, "_BETA_HEADERS_CONFIG", None)
    litellm_chat._litellm.cache_clear()
    client, _ = bench.client(through_anthropic, **ANTHROPIC)
    for streamed in (False, True):
        bench.script(Step.answer(json={"by_word": 1}))
        await asked(client, "Review it.", streamed=streamed, response_model=Counted)
    assert set(looked_up) <= {"127.0.0.1", "localhost", b"127.0.0.1"}


def given_back(client: Any) -> bool:
    pool = client._client._http._transport._pool
    return all(connection.is_idle() or connection.is_closed() for connection in pool.connections)


@pytest.mark.parametrize("way", ["litellm-openai", "litellm-anthropic"])
async def test_b06_an_answer_that_comes_as_its_caller_is_cancelled_is_given_back(bench, wires, way, monkeypatch):
    """LiteLLM drops a response without closing it when it is cancelled between the headers and the first event."""
    client, seat = bench.client(wires[way], settings={"max_connections": 1})
    bench.provider.always(Step.answer("Fine, thank you very much indeed."))
    sender = litellm_chat._sending().Sender
    task = asyncio.create_task(asked(client, "Hello.", streamed=True))
    carry = sender.post

    async def post(self: Any, *given: Any, **named: Any) -> Any:
        answer = await carry(self, *given, **named)
        task.cancel()
        await asyncio.sleep(0)
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(sender, "post", post)
        if way == "litellm-openai":
            client._client.ready()
            patched.setattr(client._client, "_openai", client._client._sender)  # the same, on the SDK's way
        with pytest.raises(asyncio.CancelledError):
            await task
    assert given_back(client)
    assert (await asked(client, "Hello.", streamed=True)).text == "Fine, thank you very much indeed."
    assert seat.kinds == [OutcomeKind.ABANDONED, OutcomeKind.COMPLETED]
    seat.check_books()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("way", ["litellm-openai", "litellm-anthropic"])
async def test_every_end_of_a_call_gives_its_connection_back(bench, wires, way, streamed):
    client, seat = bench.client(wires[way], settings={"max_connections": 1})
    steps = (
        Step.html(200), Step.html(502), Step.status(401), Step.rate_limited(1), Step.cut(0, "reset"),
        Step.cut(1, "close"), Step.answer("Fine."), Step.refusal("no"), Step.status(204, b""),
    )  # fmt: skip
    for step in steps:
        bench.script(step)
        with contextlib.suppress(UpstreamError):
            await asked(client, "Hello.", streamed=streamed)
        assert given_back(client), step.name
    assert bench.provider.count == len(seat.records) == len(steps)
