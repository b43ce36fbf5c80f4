"""The provider of another package, as docs/providers.md shows it: installed, found by its entry point, and used."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from interlock.clients import registry
from interlock.clients.conversation import Conversation, DocumentBlock, ImageBlock, TextBlock
from interlock.clients.options import CallOptions
from interlock.errors import InvalidRequestError, RateLimitedError, StreamInterruptedError, TransientUpstreamError

from .conftest import Wire, asked

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "provider"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the example is installed into, and nothing else."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
               "--disable-pip-version-check", "--target", str(target), str(EXAMPLE)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def ollama(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's provider key, known as long as the test lasts."""
    monkeypatch.syspath_prepend(installed)
    for cached in (registry._known, registry.provider_class):
        cached.cache_clear()
    yield Wire("ollama", "ollama")
    for cached in (registry._known, registry.provider_class):
        cached.cache_clear()
    sys.modules.pop("interlock_ollama", None)


class Server:
    """Answers `POST /api/chat` with what it was told to."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.bodies: list[dict[str, Any]] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head.lower())
        assert found is not None
        assert head.startswith(b"POST /api/chat ")
        self.bodies.append(json.loads(await reader.readexactly(int(found[1]))))
        status, body = self.answers.pop(0)
        writer.write(b"HTTP/1.1 %d X\r\nConnection: close\r\n\r\n" % status + body)
        await writer.drain()
        writer.close()


@pytest.fixture
async def server() -> Any:
    made = Server()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as running:
        made.url = "http://{}:{}".format(*running.sockets[0].getsockname())
        yield made


def line(content: str, *, done: bool = False, **more: Any) -> bytes:
    return json.dumps({"model": "served", "message": {"content": content}, "done": done, **more}).encode() + b"\n"


END = line("", done=True, done_reason="stop", prompt_eval_count=9, eval_count=4)


def test_it_is_complete_in_under_a_hundred_lines(installed):
    assert len((EXAMPLE / "interlock_ollama.py").read_text(encoding="utf-8").splitlines()) < 100
    (found,) = distributions(path=[str(installed)])
    assert [(point.name, point.group) for point in found.entry_points] == [("ollama", "interlock.providers")]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_it_answers_whole_and_in_pieces(bench, ollama, server, streamed):
    client, seat = bench.client(ollama, base_url=server.url)
    server.answers.append((200, line("Good ") + line("day.") + END if streamed else
                           line("Good day.", done=True, prompt_eval_count=9, eval_count=4)))  # fmt: skip
    conversation = Conversation.of([TextBlock("Hello."), ImageBlock(data=b"png")], system="Be brief.")
    answer = await asked(client, conversation, streamed=streamed, options=CallOptions(seed=7))
    assert (answer.text, answer.served_model, answer.provider) == ("Good day.", "served", "ollama")
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.estimated) == (9, 4, False)
    assert server.bodies == [{
        "model": "wire-model", "stream": streamed, "options": {"seed": 7, "num_predict": 1_000},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."},
                     {"role": "user", "content": "", "images": ["cG5n"]}],
    }]  # fmt: skip
    seat.check_books()


async def test_the_template_does_the_rest(bench, ollama, server):
    client, seat = bench.client(ollama, base_url=server.url)
    server.answers += [(429, b'{"error": "busy"}'), (200, line("Half an")), (200, b"<html>")]
    with pytest.raises(RateLimitedError):
        await client.single_response("Hello.")
    with pytest.raises(StreamInterruptedError) as cut:
        await client.stream_response("Hello.").finish()
    assert cut.value.partial == "Half an"
    with pytest.raises(TransientUpstreamError):
        await client.single_response("Hello.")
    for refused in (DocumentBlock(data=b"x"), ImageBlock(url="https://example.test/a.png")):
        with pytest.raises(InvalidRequestError):
            await client.single_response(Conversation.of([refused]))
    assert len(server.bodies) == len(seat.records) == 3
    seat.check_books()


async def test_a_server_that_is_not_there(bench, ollama):
    client, seat = bench.client(ollama, base_url="http://127.0.0.1:9")
    with pytest.raises(TransientUpstreamError) as caught:
        await client.single_response("Hello.")
    assert caught.value.sent is False
    assert seat.last.cost == 0
