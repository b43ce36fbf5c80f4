"""A folder to run commands in: pipelines, a catalog on the simulated provider, input lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from interlock.runtime.cli.app import app

PIPELINES = '''
import asyncio, os, signal
from pydantic import BaseModel
from interlock import Conversation, LLMCall, PipelineContext, pipeline

class Ticket(BaseModel):
    text: str

class Triaged(BaseModel):
    summary: str

@pipeline
async def triage(ctx: PipelineContext, ticket: Ticket) -> Triaged:
    return await ctx.run(LLMCall(ticket.text, max_output_tokens=200, response_model=Triaged))

@pipeline
async def shout(ctx: PipelineContext, text: str) -> str:
    if text == "fail":
        raise ValueError("this one cannot be shouted")
    return text.upper()

@pipeline
async def interrupted(ctx: PipelineContext, text: str) -> str:
    """Presses Ctrl-C while it works, as often as the text says, and then finishes."""
    for _ in range(text.count("^C")):
        signal.raise_signal(signal.SIGINT)
        for _ in range(50):
            await asyncio.sleep(0)
    return text

@pipeline
async def asks_for_a_stranger(ctx: PipelineContext, text: str) -> str:
    return (await ctx.run(LLMCall(text, model="no-such-model", max_output_tokens=20))).text

@pipeline
async def gives_an_object(ctx: PipelineContext, text: str) -> object:
    return object()

not_a_pipeline = 3
'''

CATALOG = """
models:
  - id: simulated-small
    grade: SMALL
    provider: simulated
    wire_model_id: simulated-small
    context_window: 200000
    max_output_tokens: 8192
    structured: native
    prices: {currency: USD, per: 1000000, input: 1.00, output: 5.00}
pins: {SMALL: [simulated-small]}
"""


@dataclass
class Folder:
    path: Path

    def lines(self, *values: Any, name: str = "in.jsonl") -> str:
        text = "".join(value if isinstance(value, str) else json.dumps(value) + "\n" for value in values)
        (self.path / name).write_text(text, encoding="utf-8")
        return name

    def output(self, name: str = "out.jsonl") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / name).read_text(encoding="utf-8").splitlines()]

    def names(self) -> set[str]:
        return {path.name for path in self.path.iterdir()}

    def call(self, *words: str) -> Result:
        return CliRunner().invoke(app, list(words))

    def run(self, pipeline: str, *words: str) -> Result:
        given = ["--input", "in.jsonl", "--output", "out.jsonl", "--catalog", "catalog.yaml"]
        return self.call("run", f"pipelines_of_test.py:{pipeline}", *given, *words)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    (tmp_path / "pipelines_of_test.py").write_text(PIPELINES, encoding="utf-8")
    (tmp_path / "catalog.yaml").write_text(CATALOG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield Folder(tmp_path)
    for name in set(sys.modules) - before:
        if name.endswith("_of_test") or name.startswith("_interlock_"):
            del sys.modules[name]
