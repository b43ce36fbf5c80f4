"""A job of one's own with a database, over a file: each answer is stored in the transaction it was granted.

    interlock run examples/answers.py:answer --input examples/tickets.jsonl --output answered.jsonl \
        --catalog examples/simulated.yaml --configure examples/answers.py:configure
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from interlock import (
    DatabaseProvider,
    Grade,
    Job,
    JobRequirements,
    JobResources,
    ModelSpec,
    PipelineContext,
    RuntimeSettings,
    pipeline,
)


@dataclass(frozen=True)
class AnswerTicket(Job[str]):
    ticket: str
    REPLY: ClassVar = ModelSpec(Grade.SMALL, max_output_tokens=200)

    def requirements(self, needs: JobRequirements) -> None:
        needs.require_model(self.REPLY, input=self.ticket)
        needs.require_database("tickets", transaction=True)

    async def run(self, resources: JobResources) -> str:
        reply = await resources.get_llm_client(self.REPLY).single_response(self.ticket)
        insert = text("INSERT INTO answers (ticket, answer) VALUES (:ticket, :answer)")
        await resources.database("tickets").execute(insert, {"ticket": self.ticket, "answer": reply.text})
        return reply.text


@pipeline(name="answer")
async def answer(ctx: PipelineContext, text: str) -> str:
    return await ctx.run(AnswerTicket(text))


async def configure(settings: RuntimeSettings) -> RuntimeSettings:
    """The settings of the command line, with the database that the job asks for."""
    engine = create_async_engine("sqlite+aiosqlite:///tickets.db")
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE IF NOT EXISTS answers (ticket TEXT, answer TEXT)"))
    return replace(settings, databases=(*settings.databases, DatabaseProvider("tickets", engine, max_concurrent=4)))
