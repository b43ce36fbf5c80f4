"""A provider on loopback, the real SDKs pointed at it with their own retries off, and every wire as a table.

Streams are read as their bytes say: server-sent events, and AWS's frames with botocore's own parser.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import httpx2
import pytest
from anthropic import AsyncAnthropic
from botocore.eventstream import EventStreamBuffer
from openai import AsyncOpenAI

from interlock.clients.simulator import SimulatedProvider


class VirtualTime:
    """A clock that only a test moves, and the sleeps that wait on it."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.slept: list[float] = []
        self.holds = False

    def now(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Time jumps to the end of a sleep; while `holds`, a sleep never ends."""
        self.slept.append(seconds)
        if self.holds:
            await asyncio.Event().wait()
        self.now_s += seconds


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
async def provider(time: VirtualTime) -> AsyncIterator[SimulatedProvider]:
    async with SimulatedProvider(now=time.now, sleep=time.sleep) as provider:
        yield provider


@pytest.fixture
async def anthropic(provider: SimulatedProvider) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(api_key="sk-test", base_url=provider.anthropic_url, max_retries=0, timeout=5) as client:
        yield client


@pytest.fixture
async def openai(provider: SimulatedProvider) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="sk-test", base_url=provider.openai_url, max_retries=0, timeout=5) as client:
        yield client


@pytest.fixture
async def http(provider: SimulatedProvider) -> AsyncIterator[httpx2.AsyncClient]:
    """Raw HTTP, for what the SDKs hide."""
    headers = {"authorization": "Bearer sk-test", "anthropic-version": "2026-10-21"}
    async with httpx2.AsyncClient(base_url=provider.base_url, headers=headers, timeout=5) as client:
        yield client


TEXT = "The parcel is late. The parcel was paid twice, and the parcel is heavy."
SAID = f"{TEXT[:19]} Keywords: parcel, late, paid, twice, heavy."
SCHEMA = {"type": "object"}
ASKED = [{"role": "user", "content": TEXT}]
MESSAGES: dict[str, Any] = {"model": "m", "max_tokens": 200, "messages": ASKED}
BEDROCK: dict[str, Any] = {"max_tokens": 200, "messages": ASKED, "anthropic_version": "bedrock-2023-05-31"}
CONVERSE: dict[str, Any] = {
    "messages": [{"role": "user", "content": [{"text": TEXT}]}],
    "inferenceConfig": {"maxTokens": 200},
}
GEMINI: dict[str, Any] = {
    "contents": [{"role": "user", "parts": [{"text": TEXT}]}],
    "generationConfig": {"maxOutputTokens": 200},
}
MESSAGES_TOOL = {
    "tools": [{"name": "f", "input_schema": SCHEMA}],
    "tool_choice": {"type": "tool", "name": "f"},
}
CHAT_TOOL = {
    "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    "tool_choice": "required",
}
RESPONSES_TOOL = {
    "tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}],
    "tool_choice": {"type": "function", "name": "f"},
}
CONVERSE_TOOL = {
    "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": SCHEMA}}}], "toolChoice": {"any": {}}}
}
GEMINI_TOOL = {
    "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
}
CALL = "/model/m/"
MODEL = "/v1beta/models/m:"
VERTEX = "/v1beta1/projects/p/locations/l/publishers/google/models/m:"


@dataclass(frozen=True, kw_only=True)
class Speech:
    """A wire as its user sees it. The last fields are where things stand in its bodies, and what they are called."""

    name: str
    path: str
    body: dict[str, Any]
    tool: dict[str, Any]
    streamed: str | None = None  # the path of a stream; None: `stream` in the body
    said: str  # the text of an answer
    called: str  # the arguments of a call
    stop: str
    cut: str  # the stop of a cut-off answer
    piece: str  # the text of an event
    end: str  # in the event that is the terminal marker
    word: str  # the word of an error
    limited: str
    busy: tuple[int, str]
    poor: tuple[int, str]
    struck: tuple[str, str]  # the word of an error in a stream: where, what
    refused: tuple[str, str]  # a refusal: where, what
    hint: str | None = "retry-after"

    asked_text: ClassVar[str] = TEXT
    said_text: ClassVar[str] = SAID

    def asked(self, *, stream: bool) -> tuple[str, dict[str, Any]]:
        """Where a request goes, and what it says."""
        if self.streamed is None:
            return self.path, self.body | ({"stream": True} if stream else {})
        return self.streamed if stream else self.path, self.body

    async def post(self, http: httpx2.AsyncClient, *, stream: bool = False, **more: Any) -> httpx2.Response:
        path, body = self.asked(stream=stream)
        return await http.post(path, json=body | more)

    async def stream(self, http: httpx2.AsyncClient, **more: Any) -> list[Any]:
        response = await self.post(http, stream=True, **more)
        assert response.status_code == 200
        return self.events(response.content, response.headers["content-type"])

    @staticmethod
    def dig(value: Any, path: str) -> Any:
        """What stands there; None where nothing does."""
        for step in path.split("."):
            if isinstance(value, list):
                value = value[int(step)] if int(step) < len(value) else None
            else:
                value = value.get(step) if isinstance(value, dict) else None
        return value

    def word_of(self, response: httpx2.Response) -> str:
        return str(self.dig(response.json() | {"errortype": response.headers.get("x-amzn-errortype")}, self.word))

    @staticmethod
    def events(data: bytes, kind: str) -> list[Any]:
        """The events of a stream, an unfinished last one left out."""
        if "eventstream" in kind:
            return frames_of(data)
        lines = [line.removeprefix("data: ") for line in data.decode().split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    def text(self, events: list[Any]) -> str:
        found = [self.dig(event, self.piece) for event in events if event != "[DONE]"]
        return "".join(each for each in found if isinstance(each, str))

    def is_whole(self, events: list[Any]) -> bool:
        return any(self.end in str(event) for event in events)


ANTHROPIC = Speech(
    name="anthropic",
    path="/v1/messages",
    body=MESSAGES,
    tool=MESSAGES_TOOL,
    said="content.0.text",
    called="content.0.input",
    stop="stop_reason",
    cut="max_tokens",
    piece="delta.text",
    end="message_stop",
    word="error.type",
    limited="rate_limit_error",
    busy=(529, "overloaded_error"),
    poor=(400, "invalid_request_error"),
    struck=("error.type", "overloaded_error"),
    refused=("stop_reason", "refusal"),
)
GOOGLE = Speech(
    name="gemini",
    path=f"{MODEL}generateContent",
    streamed=f"{MODEL}streamGenerateContent?alt=sse",
    body=GEMINI,
    tool=GEMINI_TOOL,
    said="candidates.0.content.parts.0.text",
    called="candidates.0.content.parts.0.functionCall.args",
    stop="candidates.0.finishReason",
    cut="MAX_TOKENS",
    piece="candidates.0.content.parts.0.text",
    end="finishReason",
    word="error.status",
    limited="RESOURCE_EXHAUSTED",
    busy=(503, "UNAVAILABLE"),
    poor=(429, "RESOURCE_EXHAUSTED"),
    struck=("error.status", "UNAVAILABLE"),
    refused=("candidates.0.finishReason", "SAFETY"),
    hint=None,
)
WIRES = {
    "anthropic": ANTHROPIC,
    "mantle": replace(ANTHROPIC, name="mantle", path="/anthropic/v1/messages"),
    "openai": Speech(
        name="openai",
        path="/v1/chat/completions",
        body={"model": "m", "messages": ASKED, "max_tokens": 200},
        tool=CHAT_TOOL,
        said="choices.0.message.content",
        called="choices.0.message.tool_calls.0.function.arguments",
        stop="choices.0.finish_reason",
        cut="length",
        piece="choices.0.delta.content",
        end="[DONE]",
        word="error.code",
        limited="rate_limit_exceeded",
        busy=(503, "None"),
        poor=(429, "insufficient_quota"),
        struck=("error.code", "overloaded_error"),
        refused=("choices.0.message.refusal", "It could do harm."),
    ),
    "openai-responses": Speech(
        name="openai-responses",
        path="/v1/responses",
        body={"model": "m", "input": TEXT, "max_output_tokens": 200},
        tool=RESPONSES_TOOL,
        said="output.0.content.0.text",
        called="output.0.arguments",
        stop="incomplete_details.reason",
        cut="max_output_tokens",
        piece="delta",
        end="response.completed",
        word="error.code",
        limited="rate_limit_exceeded",
        busy=(503, "server_is_overloaded"),
        poor=(429, "insufficient_quota"),
        struck=("code", "server_is_overloaded"),
        refused=("output.0.content.0.refusal", "It could do harm."),
    ),
    "bedrock-converse": Speech(
        name="bedrock-converse",
        path=f"{CALL}converse",
        streamed=f"{CALL}converse-stream",
        body=CONVERSE,
        tool=CONVERSE_TOOL,
        said="output.message.content.0.text",
        called="output.message.content.0.toolUse.input",
        stop="stopReason",
        cut="max_tokens",
        piece="contentBlockDelta.delta.text",
        end="messageStop",
        word="errortype",
        limited="ThrottlingException",
        busy=(503, "ServiceUnavailableException"),
        poor=(429, "ThrottlingException"),
        struck=("exception", "serviceUnavailableException"),
        refused=("stopReason", "content_filtered"),
        hint=None,
    ),
    "bedrock-invoke": Speech(
        name="bedrock-invoke",
        path=f"{CALL}invoke",
        streamed=f"{CALL}invoke-with-response-stream",
        body=BEDROCK,
        tool=MESSAGES_TOOL,
        said="content.0.text",
        called="content.0.input",
        stop="stop_reason",
        cut="max_tokens",
        piece="delta.text",
        end="message_stop",
        word="errortype",
        limited="ThrottlingException",
        busy=(503, "ServiceUnavailableException"),
        poor=(429, "ThrottlingException"),
        struck=("exception", "serviceUnavailableException"),
        refused=("stop_reason", "refusal"),
        hint=None,
    ),
    "gemini": GOOGLE,
    "gemini on vertex": replace(
        GOOGLE, path=f"{VERTEX}generateContent", streamed=f"{VERTEX}streamGenerateContent?alt=sse"
    ),
}


@pytest.fixture(params=list(WIRES.values()), ids=list(WIRES))
def wire(request: pytest.FixtureRequest) -> Any:
    return request.param


def frames_of(data: bytes) -> list[Any]:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    events: list[Any] = []
    for message in buffer:
        payload = json.loads(message.payload)
        if message.headers[":message-type"] == "exception":
            events.append(payload | {"exception": message.headers[":exception-type"]})
        elif "bytes" in payload:
            events.append(json.loads(base64.b64decode(payload["bytes"])))
        else:
            events.append({message.headers[":event-type"]: payload})
    return events
