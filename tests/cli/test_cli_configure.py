"""`interlock run --configure`: the deployment's databases and gates through the command line."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

SOURCE = """
from dataclasses import dataclass, replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from interlock import (
    DatabaseProvider, Job, JobRequirements, JobResources, LLMCall, PipelineContext, RuntimeSettings, pipeline
)

@dataclass(frozen=True)
class Store(Job[str]):
    name: str

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_database("notes", transaction=True)

    async def run(self, resources: JobResources) -> str:
        await resources.database("notes").execute(text("INSERT INTO notes VALUES (:name)"), {"name": self.name})
        return self.name

@pipeline
async def note(ctx: PipelineContext, name: str) -> str:
    return await ctx.run(Store(name))

@pipeline
async def spends(ctx: PipelineContext, name: str) -> str:
    return (await ctx.run(LLMCall(name, max_output_tokens=20))).text

@dataclass(frozen=True)
class Forgets(Store):
    def requirements(self, needs: JobRequirements) -> None: ...

@pipeline
async def forgets(ctx: PipelineContext, name: str) -> str:
    await ctx.run(LLMCall(name, max_output_tokens=20))
    return await ctx.run(Forgets(name))

def with_notes(settings: RuntimeSettings) -> RuntimeSettings:
    engine = create_async_engine("sqlite+aiosqlite:///notes.db")
    return replace(settings, databases=(DatabaseProvider("notes", engine, max_concurrent=2),))

async def with_notes_later(settings: RuntimeSettings) -> RuntimeSettings:
    return with_notes(settings)

def gives_nothing(settings: RuntimeSettings) -> None: ...

def fails(settings: RuntimeSettings) -> RuntimeSettings:
    raise KeyError("no such setting")
"""


@pytest.fixture
def notes(folder: Any) -> Any:
    (folder.path / "notes_of_test.py").write_text(SOURCE, encoding="utf-8")
    folder.lines(*({"name": f"n{number}"} for number in range(6)))
    with closing(sqlite3.connect(folder.path / "notes.db")) as connection:
        connection.execute("CREATE TABLE notes (name TEXT)")
    return folder


def run(folder: Any, pipeline: str, *words: str) -> Any:
    given = ["--input", "in.jsonl", "--output", "out.jsonl", "--catalog", "catalog.yaml"]
    return folder.call("run", f"notes_of_test.py:{pipeline}", *given, *words)


@pytest.mark.parametrize("function", ["with_notes", "with_notes_later"])
def test_a_job_writes_with_its_database(notes: Any, function: str) -> None:
    done = run(notes, "note", "--configure", f"notes_of_test.py:{function}")
    assert done.exit_code == 0, done.output
    assert len(notes.output()) == 6
    with closing(sqlite3.connect(notes.path / "notes.db")) as connection:
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (6,)


def test_the_command_that_goes_on_names_it(notes: Any) -> None:
    done = run(notes, "note", "--limit", "2", "--configure", "notes_of_test:with_notes")
    assert "--configure notes_of_test:with_notes" in done.stderr


def test_without_it_the_first_line_says_what_is_missing(notes: Any) -> None:
    done = run(notes, "note")
    assert done.exit_code == 2
    assert "no database 'notes' is registered" in done.stderr
    assert "--configure" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert notes.names() & {"out.jsonl", "out.jsonl.part", "interlock.db"} == set()


@pytest.mark.parametrize(
    ("function", "part"),
    [
        ("gives_nothing", "gave NoneType: it takes the RuntimeSettings and returns the ones to use"),
        ("fails", "failed: KeyError: 'no such setting' (line "),
        ("with_note", "did you mean with_notes"),
        ("Store", "is no function but a type"),
    ],
)
def test_a_function_that_cannot_be_used(notes: Any, function: str, part: str) -> None:
    done = run(notes, "note", "--configure", f"notes_of_test.py:{function}")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert part in done.stderr
    assert "interlock.db" not in notes.names()


def test_a_cap_in_a_currency_that_this_model_is_not_priced_in_stops_at_once(notes: Any) -> None:
    catalog = notes.path / "catalog.yaml"
    text = catalog.read_text(encoding="utf-8")
    entry = text.partition("models:\n")[2].partition("pins:")[0]
    other = entry.replace("simulated-small", "other").replace("USD", "EUR").replace("grade: SMALL", "grade: LARGE")
    catalog.write_text(text.replace("pins:", f"{other}pins:"), encoding="utf-8")
    done = run(notes, "spends", "--max-cost", "5 EUR")
    assert done.exit_code == 2
    assert "--max-cost is in EUR, but this call is priced in USD" in done.stderr
    assert notes.names() & {"out.jsonl", "out.jsonl.part", "interlock.db"} == set()


def test_a_job_that_did_not_declare_its_database_stops_at_the_first_line(notes: Any) -> None:
    done = run(notes, "forgets", "--configure", "notes_of_test.py:with_notes", "--concurrency", "1")
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "notes" in done.stderr
    assert len(json.loads(notes.call("calls", "--json").stdout)) == 1  # one line was paid for, not six
    assert notes.names() & {"out.jsonl", "out.jsonl.part"} == set()
