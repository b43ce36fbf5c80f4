"""Tools that the provider runs itself beside the caller's own and beside a typed answer: none is lost, each gets its
turn."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic import BaseModel

from interlock.catalog.entry import Thinking
from interlock.catalog.tokens import TokenEstimator
from interlock.clients.conversation import Conversation
from interlock.clients.options import CallOptions
from interlock.clients.simulator import Step, ToolCall
from interlock.errors import (
    InvalidRequestError,
)

from .conftest import asked
from .served import (
    CODE,
    FOUND,
    LOOK,
    SEARCH,
    USED,
    own,
)

OFFERED = {
    "anthropic-direct": {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    "openai": {"type": "web_search"},
    "gemini": {"codeExecution": {}},
    "openai-chat-completions": {"type": "custom", "custom": {"name": "shell"}},
}


@pytest.mark.parametrize("key", OFFERED)
@pytest.mark.parametrize("where", ["call", "entry"])
async def test_no_tool_is_lost_beside_the_providers(bench, wires, key, where):
    """A call's own tools and those that `provider_options` gives, the call's or its entry's, are offered together."""
    given = {"tools": [OFFERED[key]]}
    client, _ = bench.client(wires[key], provider_options=given if where == "entry" else {})
    options = CallOptions(tools=(LOOK,), provider_options=given if where == "call" else {})
    prepared = client._client.prepare(client.binding, "Look.", options, None, stream=False)
    tools = json.loads(prepared.body)["tools"]
    assert len(tools) == 2
    assert "look" in json.dumps(tools[0])
    assert tools[1] == OFFERED[key]


async def test_the_calls_provider_tools_stand_instead_of_the_entrys(bench, anthropic):
    fetch = {"type": "web_fetch_20250910", "name": "web_fetch"}
    client, _ = bench.client(anthropic, provider_options={"tools": [OFFERED["anthropic-direct"]]})
    await client.single_response("Look.", options=CallOptions(tools=(LOOK,), provider_options={"tools": [fetch]}))
    assert [tool["name"] for tool in bench.sent["tools"]] == ["look", "web_fetch"]
    await client.single_response("Look.")
    assert [tool["name"] for tool in bench.sent["tools"]] == ["web_search"]


@pytest.mark.parametrize("key", ["anthropic-direct", "openai", "gemini", "openai-chat-completions"])
async def test_one_of_the_same_name_is_the_same_tool_in_the_wires_words(bench, wires, key):
    raw = {
        "anthropic-direct": {"name": "look", "input_schema": {"type": "object"}, "strict": True},
        "openai": {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True},
        "gemini": {"functionDeclarations": [{"name": "look", "behavior": "BLOCKING"}]},
        "openai-chat-completions": {"type": "function", "function": {"name": "look", "strict": True}},
    }[key]
    client, _ = bench.client(wires[key])
    other = replace(LOOK, name="other")
    options = CallOptions(tools=(LOOK, other), provider_options={"tools": [raw]})
    body = json.loads(client._client.prepare(client.binding, "Look.", options, None, stream=False).body)
    assert len(body["tools"]) == 2
    assert '"other"' in json.dumps(body["tools"][0])
    assert '"look"' not in json.dumps(body["tools"][0])
    assert body["tools"][1] == raw
    only = CallOptions(tools=(LOOK,), provider_options={"tools": [raw]})
    body = json.loads(client._client.prepare(client.binding, "Look.", only, None, stream=False).body)
    assert body["tools"] == [raw]


@pytest.mark.parametrize("own", [(LOOK,), ()], ids=["beside", "alone"])
@pytest.mark.parametrize("given", [{"name": "web_search"}, "web_search", 5, None])
@pytest.mark.parametrize("key", ["anthropic-direct", "openai", "gemini", "openai-chat-completions"])
async def test_tools_that_are_no_list_are_refused_by_name(bench, wires, key, given, own):
    client, seat = bench.client(wires[key])
    with pytest.raises(InvalidRequestError, match="tools in provider_options must be a list") as caught:
        await client.single_response("Look.", options=CallOptions(tools=own, provider_options={"tools": given}))
    assert (caught.value.sent, bench.provider.count, seat.permits) == (False, 0, [])


@pytest.mark.parametrize(("chosen", "calling"), [
    (None, {}), ("auto", {}), ("any", {"functionCallingConfig": {"mode": "ANY"}}),
])  # fmt: skip
async def test_gemini_may_tell_of_its_tools_beside_functions(bench, wires, chosen, calling):
    client, _ = bench.client(wires["gemini"])
    given = {"tools": [OFFERED["gemini"]]}
    bench.provider.always(Step.answer("Four."))
    await client.single_response(
        "Look.", options=CallOptions(tools=(LOOK,), tool_choice=chosen, provider_options=given)
    )
    assert bench.sent["toolConfig"] == {"includeServerSideToolInvocations": True, **calling}
    both = {"tools": [OFFERED["gemini"], {"functionDeclarations": [{"name": "look"}]}]}
    await client.single_response("Look.", options=CallOptions(provider_options=both))
    assert bench.sent["toolConfig"] == {"includeServerSideToolInvocations": True}
    for options in (CallOptions(tools=(LOOK,)), CallOptions(provider_options=given)):
        await client.single_response("Look.", options=options)
        assert "toolConfig" not in bench.sent

    vertex, _ = bench.client(wires["vertex"])
    await vertex.single_response("Look.", options=CallOptions(tools=(LOOK,), provider_options=given))
    assert "toolConfig" not in bench.sent, "Vertex AI knows no such setting"


async def test_what_is_to_be_included_joins_what_reasoning_needs(bench, responses):
    client, _ = bench.client(responses, thinking=Thinking(mode="effort"))
    sources, sealed = "web_search_call.action.sources", "reasoning.encrypted_content"
    for given in ([sources], (sealed, sources)):
        await client.single_response("Look.", options=CallOptions(provider_options={"include": given}))
        assert bench.sent["include"] == [sealed, sources]
    plain, _ = bench.client(responses)
    await plain.single_response("Look.", options=CallOptions(provider_options={"include": [sources]}))
    assert bench.sent["include"] == [sources]


class Review(BaseModel):
    title: str


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_typed_answer_leaves_the_providers_tools_their_turn(bench, anthropic, streamed):
    """Its tool is offered beside them, not forced: a forced one would be called before anything was looked up."""
    client, _ = bench.client(anthropic, structured="tool")
    options = CallOptions(provider_options={"tools": [OFFERED["anthropic-direct"]]})
    answers = (ToolCall(name="Review", input={"title": "Tea"}),)
    bench.script(Step.answer("So:", server_tools=(SEARCH, FOUND, CODE), tool_calls=answers), Step.answer("Yes."))
    response = await asked(client, "Review tea.", streamed=streamed, response_model=Review, options=options)
    assert [tool["name"] for tool in bench.sent["tools"]] == ["Review", "web_search"]
    assert bench.sent["tool_choice"]["type"] == "auto"
    assert response.parsed == Review(title="Tea")
    assert [dict(one.payload) for one in own(response)] == [SEARCH, FOUND], "what waits for the call's result is gone"
    await client.single_response(Conversation.of("Review tea.").assistant(response.blocks).user("Sure?"))


@pytest.mark.parametrize("key", ["anthropic-direct", "gemini"])
async def test_the_estimate_learns_nothing_from_what_a_search_added(bench, wires, key):
    estimator = TokenEstimator()
    client, _ = bench.client(wires[key], estimator=estimator)
    options = CallOptions(provider_options={"tools": [OFFERED[key]]})
    bench.script(Step.answer("Four.", server_tools=USED[key][:2], input_tokens=40_000),
                 Step.answer("Four.", input_tokens=40_000))  # fmt: skip
    await client.single_response("Look.")
    await client.single_response("Look.", options=options)
    assert estimator.factor("the-model") == TokenEstimator().factor("the-model")
