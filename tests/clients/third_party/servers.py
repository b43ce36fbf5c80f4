"""Servers that nobody here wrote: how each is started, told what to do, and asked how many requests it saw.

Each runs as a process of its own on loopback, on a port that the system gave it, and ends with its standard input: also
when the tests are killed. `make test` installs them beside the environment of the tests (`third-party/` in it), because
their pins are not ours.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

HOME = Path(sys.prefix) / "third-party"
PYTHON = HOME / "bin" / "python"
AIMOCK = HOME / "node_modules" / "@copilotkit" / "aimock"
START_S = 60.0

_LLMOCK = """
import sys
from llmock.testing import LLMockServer
with LLMockServer() as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""

#: It counts nothing itself, so it is counted what comes in.
_MOCK_AI_API = """
import json, socket, sys, threading, uvicorn
from app.anthropic_app import app as anthropic
from app.openai_app import app as openai
seen = 0
def counted(app):
    async def counting(scope, receive, send):
        global seen
        if scope["path"] == "/count":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            return await send({"type": "http.response.body", "body": json.dumps(seen).encode()})
        seen += 1
        await app(scope, receive, send)
    return counting
for app in (anthropic, openai):
    sock = socket.socket(); sock.bind(("127.0.0.1", 0)); sock.listen()
    server = uvicorn.Server(uvicorn.Config(counted(app), lifespan="off", log_level="warning"))
    threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True).start()
    print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
sys.stdin.read()
"""

_AIMOCK = """
import { LLMock } from %s;
const mock = new LLMock({ port: 0, host: "127.0.0.1" });
console.log(await mock.start());
process.stdin.on("end", () => process.exit(0)).resume();
"""


class Absent(Exception):
    """A server is not installed here."""


class ThirdParty:
    """A running server. `can` names what a test may ask of it; a wire is spoken at `urls`."""

    name: ClassVar[str]
    #: id of a wire in WIRES -> where it is spoken, under the server's address
    wires: ClassVar[Mapping[str, str]]
    can: ClassVar[frozenset[str]]
    #: wires of which its streams are not conformant
    whole: ClassVar[frozenset[str]] = frozenset()
    addresses: ClassVar[int] = 1
    settings: ClassVar[Mapping[str, str]] = {}
    statuses: ClassVar[tuple[int, ...]] = (400, 401, 429, 500, 503, 529)

    def __init__(self) -> None:
        self.model = "a-model"
        self._process = subprocess.Popen(
            self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=HOME, env={**os.environ, **self.settings},
        )  # fmt: skip
        self.log: list[str] = []
        self._first = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._first.wait(START_S) or len(self.urls) < self.addresses:
            self.stop()
            raise RuntimeError(f"{self.name} did not start: {' / '.join(self.log[-5:])}")
        self.reset()

    @classmethod
    def command(cls) -> Sequence[str]:
        raise NotImplementedError

    @property
    def urls(self) -> list[str]:
        return [line for line in self.log if re.fullmatch(r"http://127\.0\.0\.1:\d+", line)]

    def url(self, wire_id: str) -> str:
        return self.urls[0] + self.wires[wire_id]

    def stop(self) -> None:
        """The end of its standard input is the end of it; what does not listen is killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.log.append(line.strip())
            if len(self.urls) >= self.addresses:
                self._first.set()
        self._first.set()

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.urls[0] + path, data, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    # What the tests ask for. Each holds for the next request.

    def reset(self) -> None:
        """Nothing scripted, nothing seen."""

    def answer(self, text: str) -> None:
        raise NotImplementedError

    def call_tool(self, name: str, arguments: dict[str, Any]) -> None:
        raise NotImplementedError

    def fail(self, status: int, *, retry_after_s: int | None = None) -> None:
        raise NotImplementedError

    def break_stream(self, how: str) -> None:
        """`drop`: the connection is lost before anything came; `disconnect`: after some pieces; `truncate`: it ends
        there, politely; `malformed`: an event is no JSON; `error`: an error event."""
        raise NotImplementedError

    def count(self) -> int:
        """How many requests it has seen."""
        raise NotImplementedError


class Llmock(ThirdParty):
    """PyPI `llmock`."""

    name = "llmock"
    wires: ClassVar = {
        "anthropic-direct": "/anthropic", "openai": "/v1", "openai-chat-completions": "/v1", "openai-compatible": "/v1",
        "gemini": "/gemini", "litellm-openai": "/v1", "litellm-anthropic": "/anthropic",
    }  # fmt: skip
    can = frozenset({"answer", "tool", "fail", "disconnect", "truncate", "malformed", "typed", "limits"})
    settings: ClassVar = {"LLMOCK_RPM": "500", "LLMOCK_TPM": "20000"}

    @classmethod
    def command(cls) -> Sequence[str]:
        _python_with("llmock")
        return [str(PYTHON), "-P", "-c", _LLMOCK]

    def reset(self) -> None:
        self._ask("POST", "/_llmock/reset")

    def answer(self, text: str) -> None:
        self._queue({"type": "reply", "text": text})

    def call_tool(self, name: str, arguments: dict[str, Any]) -> None:
        self._queue({"type": "reply", "tool_calls": [{"name": name, "arguments": arguments}]})

    def fail(self, status: int, *, retry_after_s: int | None = None) -> None:
        self._queue({"type": "fail", "status": status, "retry_after": retry_after_s})

    def break_stream(self, how: str) -> None:
        self._queue({"type": "stream_fault", "kind": how, "after_chunks": 5})

    def count(self) -> int:
        return int(self._ask("GET", "/_llmock/requests")["count"])

    def _queue(self, behaviour: dict[str, Any]) -> None:
        self._ask("POST", "/_llmock/scenario", {"behaviors": [behaviour]})


class MockAiApi(ThirdParty):
    """PyPI `mock-ai-api`: the model's name is the script."""

    name = "mock-ai-api"
    wires: ClassVar = {
        "anthropic-direct": "", "openai": "/v1", "openai-chat-completions": "/v1", "openai-compatible": "/v1",
        "litellm-openai": "/v1", "litellm-anthropic": "",
    }  # fmt: skip
    can = frozenset({"error"})
    addresses = 2
    #: What it says to everything.
    ANSWER = "Hello. It's nice to meet you."
    statuses = (400, 401, 429, 500, 503)

    @classmethod
    def command(cls) -> Sequence[str]:
        _python_with("app")
        return [str(PYTHON), "-P", "-c", _MOCK_AI_API]

    def url(self, wire_id: str) -> str:
        return self.urls["anthropic" not in wire_id] + self.wires[wire_id]

    def reset(self) -> None:
        self.model, self._before = "a-model", self._seen()

    def fail(self, status: int, *, retry_after_s: int | None = None) -> None:
        self.model = f"a-model:mock-{status}"

    def break_stream(self, how: str) -> None:
        self.model = "a-model:mock-stream-error"

    def count(self) -> int:
        return self._seen() - self._before

    def _seen(self) -> int:
        return int(self._ask("GET", "/count"))


class Aimock(ThirdParty):
    """npm `@copilotkit/aimock`."""

    name = "aimock"
    wires: ClassVar = {
        "anthropic-direct": "", "openai": "/v1", "openai-chat-completions": "/v1", "openai-compatible": "/v1",
        "gemini": "", "litellm-openai": "/v1", "litellm-anthropic": "", "anthropic-bedrock": "", "bedrock-converse": "",
    }  # fmt: skip
    can = frozenset({"answer", "tool", "fail", "disconnect", "drop"})
    whole = frozenset({"anthropic-bedrock"})  # its frames hold the events as they are, not as bytes in base64

    @classmethod
    def command(cls) -> Sequence[str]:
        if not AIMOCK.is_dir():
            raise Absent(f"aimock is not installed in {HOME} (make test does it where there is npm)")
        entry = json.dumps((AIMOCK / "dist" / "index.js").as_uri())
        return ["node", "--input-type=module", "-e", _AIMOCK % entry]

    def reset(self) -> None:
        self._ask("POST", "/__aimock/reset")

    def answer(self, text: str) -> None:
        # What a fixture does not say it reports as zero tokens, except on the chat wire.
        self._add({"content": text, "usage": {"input_tokens": 12, "output_tokens": 7, "prompt_tokens": 12,
                                              "completion_tokens": 7, "promptTokenCount": 12,
                                              "candidatesTokenCount": 7}})  # fmt: skip

    def call_tool(self, name: str, arguments: dict[str, Any]) -> None:
        self._add({"toolCalls": [{"name": name, "arguments": arguments}]})

    def fail(self, status: int, *, retry_after_s: int | None = None) -> None:
        wait = {} if retry_after_s is None else {"retryAfter": retry_after_s}
        self._add({"error": {"message": "scripted", "type": "scripted"}, "status": status, **wait})

    def break_stream(self, how: str) -> None:
        cut = {"disconnect": {"truncateAfterChunks": 8, "latency": 1}, "drop": {"chaos": {"disconnectRate": 1}}}[how]
        self._add({"content": "One, two, three, four, five, six, seven."}, chunkSize=4, **cut)

    def count(self) -> int:
        return len(self._ask("GET", "/__aimock/journal"))

    def _add(self, response: dict[str, Any], **how: Any) -> None:
        self._ask("DELETE", "/__aimock/fixtures")
        self._ask("POST", "/__aimock/fixtures", {"fixtures": [{"match": {}, "response": response, **how}]})


SERVERS: tuple[type[ThirdParty], ...] = (Llmock, MockAiApi, Aimock)


def _python_with(module: str) -> None:
    site = next(iter(sorted(HOME.glob("lib/python*/site-packages"))), None)
    if not PYTHON.exists() or site is None or not (site / module).is_dir():
        raise Absent(f"{module} is not installed in {HOME} (make test does it)")
