"""The usual way, for comparison: send, catch the 429, sleep as long as it says, send again, holding the connection.

A fixed number of workers share the provider's own SDK. Each takes a connection, opens a transaction, sees whether the
entry is there already, asks the models, writes, commits. Nothing here is made worse than it is commonly written: it
honours `retry-after`, adds jitter, and never gives up on an entry.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from interlock.clients.simulator import SimulatedProvider

from .corpus import Entry
from .figures import Served, Side, goodput_after_burst
from .library import ENTRIES, ConnectionMeter, open_library, store
from .work import AREA, DEPRECATED, MAX_OUTPUT_TOKENS, SYSTEM, Card, prompt_of, row_of, searchable, state_of

if TYPE_CHECKING:
    import numpy as np
    from anthropic import AsyncAnthropic
    from numpy.typing import NDArray
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

WORKERS = 24


@dataclass
class LocalModels:
    """The same local models the demo uses, called through their own libraries."""

    embedder: Any
    decider: Any
    questions: dict[str, Any] = field(
        default_factory=lambda: {
            "area": {
                "type": "choice",
                "instructions": AREA.question,
                "criteria": {option.name: option.description for option in AREA.options},
            },
            "deprecated": {"type": "noul", "instructions": DEPRECATED.question},
        }
    )

    @staticmethod
    def load() -> LocalModels:
        root = logging.getLogger()
        handlers, level = list(root.handlers), root.level
        wordllama = import_module("wordllama")  # it configures the root logger
        root.handlers[:], root.level = handlers, level
        folder = Path(str(wordllama.__file__)).parent
        embedder = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
        return LocalModels(embedder, import_module("sparrow_decider").Decider.load())

    def ask(self, entry: Entry) -> tuple[str, float]:
        answers = self.decider.ask(state_of(entry), self.questions)
        return str(answers["area"]["choice"]), float(answers["deprecated"]["noul"])

    def embed(self, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self.embedder.embed([text], norm=True)[0]
        return vector


class UsualWay:
    def __init__(
        self, client: AsyncAnthropic, engine: AsyncEngine, meter: ConnectionMeter, local: LocalModels, model: str
    ) -> None:
        self._client, self._engine, self._meter, self._local, self._model = client, engine, meter, local, model
        self._random = random.Random(0)

    async def worker(self, queue: Iterator[Entry], finished: Callable[[], None]) -> None:
        for entry in queue:
            async with self._engine.connect() as connection, connection.begin():
                await self.catalogue(entry, connection)
            finished()

    async def catalogue(self, entry: Entry, connection: AsyncConnection) -> None:
        there = select(ENTRIES.c.name).where(ENTRIES.c.name == entry.name)
        if (await connection.execute(there)).first() is not None:
            return
        with self._meter.elsewhere():
            area, deprecated = await asyncio.to_thread(self._local.ask, entry)
            vector = await asyncio.to_thread(self._local.embed, searchable(entry))
            card = await self.send(prompt_of(entry))
            likeness = float(vector @ await asyncio.to_thread(self._local.embed, card.summary))
        await store(connection.execute, row_of(entry, area, deprecated, card, likeness, vector), card.keywords)

    async def send(self, prompt: str) -> Card:
        from anthropic import RateLimitError

        while True:
            try:
                answer = await self._client.messages.parse(
                    model=self._model,
                    max_tokens=MAX_OUTPUT_TOKENS,
                    system=SYSTEM,
                    messages=[{"role": "user", "content": prompt}],
                    output_format=Card,
                )
            except RateLimitError as refused:
                told_s = float(refused.response.headers.get("retry-after", "1"))
                await asyncio.sleep(told_s + self._random.random() * 0.25)
                continue
            if answer.parsed_output is None:
                raise ValueError("the model did not answer in the wanted shape")
            return answer.parsed_output


async def run_the_usual_way(
    corpus: Sequence[Entry],
    provider: SimulatedProvider,
    folder: Path,
    *,
    model: str,
    served: Served,
    workers: int = WORKERS,
    finished: Callable[[], None] = lambda: None,
) -> Side:
    """The whole corpus on that provider, and what it took."""
    from anthropic import AsyncAnthropic

    local = await asyncio.to_thread(LocalModels.load)
    engine = await open_library(folder / "usual-way.db", connections=workers)
    meter = ConnectionMeter(engine)
    queue = iter(corpus)
    begun = time.perf_counter()
    try:
        async with AsyncAnthropic(base_url=provider.anthropic_url, api_key="simulated", max_retries=0) as client:
            usual = UsualWay(client, engine, meter, local, model)
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(usual.worker(queue, finished))
        wall_s = time.perf_counter() - begun
    finally:
        await engine.dispose()
    return Side(
        done=len(corpus),
        failed=0,
        requests=provider.count,
        rate_limited=provider.refused,
        goodput=goodput_after_burst(provider.requests, served),
        wall_s=wall_s,
        db_connection_s=meter.held_s,
        db_work_s=meter.work_s,
        log=provider.requests,
        holds=tuple(meter.holds),
    )
