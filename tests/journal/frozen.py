"""A program that is frozen in the middle of a run: `python frozen.py STORE USERS LEASE_S SECONDS`.

It says `ready` from within its second step, whose row is written into the user's database and not committed, and goes
on after so many seconds. What it was stopped with is its last line.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from interlock.runtime import DatabaseProvider, Job, PipelineContext, Runtime, RuntimeSettings, pipeline

SAVED = sa.Table("saved", sa.MetaData(), sa.Column("text", sa.Text))


@dataclass(frozen=True)
class Save(Job[str]):
    text: str
    seconds: float

    def requirements(self, needs: Any) -> None:
        needs.require_database("users")

    async def run(self, resources: Any) -> str:
        await resources.database("users").execute(SAVED.insert(), {"text": self.text})
        if self.seconds:
            print("ready", flush=True)
            await asyncio.sleep(self.seconds)
        return self.text


@pipeline
async def work(ctx: PipelineContext, seconds: float) -> list[str]:
    first = await ctx.run(Save("one", 0.0))
    return [first, await ctx.run(Save("two", seconds))]


async def main(store: str, users: str, lease_s: str, seconds: str) -> None:
    engine = create_async_engine(users)
    provider = DatabaseProvider(name="users", engine=engine, max_concurrent=2, outcomes=True)
    settings = RuntimeSettings(store=store, databases=(provider,), lease_s=float(lease_s))
    try:
        async with engine.begin() as connection:
            await connection.run_sync(SAVED.metadata.create_all)
        async with Runtime(settings) as runtime:
            print("done", await runtime.run(work(float(seconds)), run_id="frozen"), flush=True)
    except Exception as error:
        print("stopped", type(error).__name__, flush=True)
    finally:
        await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
