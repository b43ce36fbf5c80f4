"""A database in this process: nothing but the loop and the clock decides what happens when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FakeEngine:
    """Speaks as much of an async engine as a job's transaction needs, and counts."""

    clock: Any
    out: int = 0
    most_out: int = 0
    begun: int = 0
    committed: list[str] = field(default_factory=list)
    rolled_back: int = 0
    fail: Callable[[], bool] = lambda: False

    async def connect(self) -> FakeConnection:
        await asyncio.sleep(0)
        self.out += 1
        self.most_out = max(self.most_out, self.out)
        return FakeConnection(self)

    def check(self) -> None:
        """Nothing is out, and every transaction was ended."""
        assert self.out == 0, "a connection is still out"
        assert self.begun == self.rolled_back + len(self.committed), "a transaction was left open"


class FakeConnection:
    def __init__(self, engine: FakeEngine) -> None:
        self.engine, self.written, self.open, self.begun = engine, list[str](), True, False

    async def begin(self) -> None:
        self.begun = True
        self.engine.begun += 1
        await asyncio.sleep(0)

    async def execute(self, statement: Any, parameters: Any = None) -> Any:
        await self.engine.clock.sleep(0.01)
        if self.engine.fail():
            raise OSError("the database said no")
        self.written.append(str(statement))

    async def commit(self) -> None:
        await asyncio.sleep(0)
        assert self.begun
        self.begun = False
        self.engine.committed.append("; ".join(self.written))

    async def rollback(self) -> None:
        await asyncio.sleep(0)
        if self.begun:
            self.begun = False
            self.engine.rolled_back += 1

    async def invalidate(self) -> None:
        await self.rollback()

    async def close(self) -> None:
        assert self.open, "closed twice"
        assert not self.begun, "returned inside a transaction"
        self.open = False
        self.engine.out -= 1
        await asyncio.sleep(0)
