"""A program that kills itself: `python killed.py STORE USERS` prints a line of JSON for each commit of a pipeline.

One process imports everything and serves the provider; each life of a run is a fork of it. The first life kills itself
(SIGKILL) right before or right after the n-th COMMIT on any connection, the store's and the user's; the second goes on
with the run; a third finds it over. STORE and USERS are SQLAlchemy URLs: of the store, and of the user's own database.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.ext.asyncio import create_async_engine

from interlock.catalog import Catalog, Limits, ModelEntry, ModelSpec, Prices, ProviderSettings
from interlock.catalog.words import Grade
from interlock.clients.simulator import SimulatedProvider
from interlock.runtime import DatabaseProvider, Job, LLMCall, PipelineContext, Runtime, RuntimeSettings, pipeline

SAVED = sa.Table(
    "saved", sa.MetaData(), sa.Column("run", sa.Text), sa.Column("step", sa.Text), sa.Column("text", sa.Text)
)


@dataclass(frozen=True)
class AnswerAndSave(Job[str]):
    """Asks, and keeps the answer in the user's database."""

    text: str
    REPLY: ClassVar = ModelSpec(Grade.SMALL, max_output_tokens=20)

    def requirements(self, needs: Any) -> None:
        needs.require_model(self.REPLY, input=self.text)
        needs.require_database("users")

    async def run(self, resources: Any) -> str:
        answer = await resources.get_llm_client(self.REPLY).single_response(self.text)
        await save(resources, answer.text)
        return str(answer.text)


@dataclass(frozen=True)
class Save(Job[str]):
    """Only writes."""

    text: str

    def requirements(self, needs: Any) -> None:
        needs.require_database("users")

    async def run(self, resources: Any) -> str:
        await save(resources, self.text)
        return self.text.upper()


async def save(resources: Any, text: str) -> None:
    values = {"run": resources.run_id, "step": resources.step_id, "text": text}
    await resources.database("users").execute(SAVED.insert(), values)


def reverse(text: str) -> str:
    return text[::-1]


@pipeline
async def work(ctx: PipelineContext) -> list[str]:
    first = await ctx.run(LLMCall("ask one", max_output_tokens=20))
    named = str(ctx.uuid())
    second = await ctx.run(AnswerAndSave("ask two"))
    third, fourth = await ctx.gather(LLMCall("ask three", max_output_tokens=20), Save("four"))
    fifth = await ctx.step(reverse, "five")
    return [first.text, named, second, third.text, fourth, fifth]


#: Which step asks for which text.
STEPS = {"ask one": "0", "ask two": "2", "ask three": "3/0"}


class Fault:
    """Ends the process at a COMMIT. `at` counts from 1; None: never, but they are counted."""

    def __init__(self, at: int | None, before: bool) -> None:
        self.at, self.before, self.seen = at, before, 0
        real: Callable[..., None] = DefaultDialect.do_commit
        fault = self

        def do_commit(dialect: Any, connection: Any) -> None:
            fault.seen += 1
            struck = fault.seen == fault.at
            if struck and fault.before:
                os.kill(os.getpid(), signal.SIGKILL)
            real(dialect, connection)
            if struck:
                os.kill(os.getpid(), signal.SIGKILL)

        DefaultDialect.do_commit = do_commit  # type: ignore[method-assign]


def catalog(url: str) -> Catalog:
    entry = ModelEntry(
        id="small",
        grade=Grade.SMALL,
        provider="anthropic-direct",
        wire_model_id="small",
        context_window=10_000,
        max_output_tokens=100,
        limits=Limits(max_concurrent=50),  # nothing metered: what a killed process may have used would be waited for
        prices=Prices(input=Decimal(1), output=Decimal(10), per=1_000_000),
    )
    return Catalog.of([entry], providers={"anthropic-direct": ProviderSettings(base_url=url)})


async def live(
    url: str, store: str, users: str, run_id: str, at: int | None = None, before: bool = False
) -> dict[str, Any]:
    """One life of the run; what is on record at its end."""
    engine = create_async_engine(users)
    databases = (DatabaseProvider("users", engine, outcomes=True),)
    async with Runtime(
        RuntimeSettings(catalog=catalog(url), store=store, databases=databases, freeze=False)
    ) as runtime:
        fault = Fault(at, before)
        result = await runtime.run(work(), run_id=run_id)
        commits = fault.seen
        assert runtime._dispatcher is not None
        assert runtime._dispatcher.keeping is not None
        kept = await runtime._dispatcher.keeping.journal.read(run_id)
        assert kept is not None
        calls = await runtime.calls(run_id=run_id)
        async with engine.connect() as connection:
            question = sa.select(SAVED.c.step).where(SAVED.c.run == run_id)
            saved = [row[0] for row in await connection.execute(question)]
    await engine.dispose()
    return {
        "result": result,
        "commits": commits,
        "saved": sorted(saved),
        "steps": {id: [str(step.status), step.again, step.copied] for id, step in kept.steps.items()},
        "calls": [[row.step_id, row.attempt, row.record.outcome] for row in calls],
    }


def forked(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What `work` gives in a process of its own; None where that was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code = 1
        try:
            with os.fdopen(writer, "w") as pipe:
                json.dump(asyncio.run(work()), pipe)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert status == 0, "see its traceback above"
    return json.loads(said)


async def prepare(users: str) -> None:
    engine = create_async_engine(users)
    async with engine.begin() as connection:
        await connection.run_sync(SAVED.create, checkfirst=True)
    await engine.dispose()


def main(store: str, users: str) -> None:
    os.environ["ANTHROPIC_API_KEY"] = "key"
    with SimulatedProvider(answer=lambda seen: f"answer {seen.ask.text}").in_thread() as provider:
        url = provider.anthropic_url

        def lived(run_id: str, at: int | None = None, before: bool = False) -> Any:
            provider.clear()
            lived = forked(lambda: live(url, store, users, run_id, at, before))
            bodies = [json.dumps(seen.body) for seen in provider.requests]  # one cut off in the middle has no text
            return lived, dict(Counter(text for body in bodies for text in STEPS if text in body))

        asyncio.run(prepare(users))
        whole = asyncio.run(live(url, store, users, "whole"))  # here: whatever is imported late is there for all forks
        print(json.dumps({"whole": whole}), flush=True)
        for at in range(1, whole["commits"] + 1):
            for before in (True, False):
                run_id = f"{at}-{before}"
                killed, sent = lived(run_id, at, before)
                resumed, again = lived(run_id)
                report = {"at": at, "before": before, "killed": killed is None, "sent": sent, "again": again}
                print(json.dumps({**report, "resumed": resumed}), flush=True)
        ended, sent = lived("whole")
        print(json.dumps({"ended": ended, "sent": sent}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
