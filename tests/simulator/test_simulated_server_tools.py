"""What tools of a provider's own did, as the real SDKs read it and as the provider takes it back."""

from __future__ import annotations

from typing import Any

import anthropic as sdk
import pytest
from anthropic import AsyncAnthropic
from google.genai import types
from openai import AsyncOpenAI

from interlock.clients.simulator import SimulatedProvider, Step

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "green tea, grün"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "https://tea.test", "title": "Tea", "encrypted_content": "Eo8="}],
}
WEB_CALL = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "tea"},
}
PARTS = (
    {"executableCode": {"language": "PYTHON", "code": "print(4)"}},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4\n"}},
)
TOOLS: Any = [{"type": "web_search_20250305", "name": "web_search"}]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.mark.parametrize(("text", "stop"), [("Green.", "end_turn"), (None, "pause_turn")])
async def test_anthropics_sdk_reads_it_whole_and_streamed(
    anthropic: AsyncAnthropic, provider: SimulatedProvider, text: str | None, stop: str
) -> None:
    provider.always(Step.answer(text, server_tools=(SEARCH, FOUND), stop_reason=stop))
    asked: Any = {"model": "m", "max_tokens": 100, "messages": [user("Look.")], "tools": TOOLS}
    whole = await anthropic.messages.create(**asked)
    async with anthropic.messages.stream(**asked) as stream:
        streamed = await stream.get_final_message()
    for message in (whole, streamed):
        search, found, *said = message.content
        assert isinstance(search, sdk.types.ServerToolUseBlock)
        assert search.input == SEARCH["input"]
        assert isinstance(found, sdk.types.WebSearchToolResultBlock)
        assert found.model_dump(exclude_none=True, exclude_unset=True) == FOUND
        assert [block.type for block in said] == (["text"] if text else [])
        assert message.stop_reason == stop


async def test_anthropic_takes_it_back_and_counts_it(anthropic: AsyncAnthropic, provider: SimulatedProvider) -> None:
    turns: Any = [user("Look."), {"role": "assistant", "content": [SEARCH, FOUND]}]
    message = await anthropic.messages.create(model="m", max_tokens=100, messages=turns, tools=TOOLS)
    without = await anthropic.messages.create(model="m", max_tokens=100, messages=turns[:1], tools=TOOLS)
    assert message.usage.input_tokens > without.usage.input_tokens + 30


@pytest.mark.parametrize("content", [[FOUND], [FOUND, SEARCH], [{"type": "unheard_of"}]])
async def test_anthropic_refuses_a_result_without_its_call(anthropic: AsyncAnthropic, content: Any) -> None:
    turns: Any = [user("Look."), {"role": "assistant", "content": content}, user("Sure?")]
    with pytest.raises(sdk.BadRequestError, match=r"messages\.1\.content\.0"):
        await anthropic.messages.create(model="m", max_tokens=100, messages=turns)


async def test_openais_sdk_reads_it_and_its_provider_takes_it_back(
    openai: AsyncOpenAI, provider: SimulatedProvider
) -> None:
    provider.always(Step.answer("Green.", server_tools=(WEB_CALL,)))
    whole = await openai.responses.create(model="m", input="Look.", store=False)
    streamed = [event async for event in await openai.responses.create(model="m", input="Look.", stream=True)]
    final = streamed[-1]
    assert final.type == "response.completed"
    for response in (whole, final.response):
        call, said = response.output
        assert call.type == "web_search_call"
        assert call.model_dump(exclude_none=True, exclude_unset=True) == WEB_CALL
        assert (said.type, response.output_text) == ("message", "Green.")
    given: Any = [user("Look."), WEB_CALL, {"role": "assistant", "content": "Green."}, user("Sure?")]
    assert (await openai.responses.create(model="m", input=given, store=False)).output_text == "Green."


async def test_googles_types_read_it(provider: SimulatedProvider) -> None:
    import httpx2

    provider.always(Step.answer("Four.", server_tools=PARTS))
    asked = {"contents": [{"role": "user", "parts": [{"text": "Count."}]}]}
    async with httpx2.AsyncClient(base_url=provider.gemini_url) as http:
        answer = await http.post("/v1beta/models/m:generateContent", json=asked, headers={"x-goog-api-key": "k"})
        content = answer.json()["candidates"][0]["content"]
        asked["contents"] += [content, {"role": "user", "parts": [{"text": "Sure?"}]}]
        again = await http.post("/v1beta/models/m:generateContent", json=asked, headers={"x-goog-api-key": "k"})
    read = types.GenerateContentResponse.model_validate(answer.json())
    assert read.executable_code == "print(4)"
    assert read.code_execution_result == "4\n"
    assert again.status_code == 200
