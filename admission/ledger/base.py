"""What the ledgers have in common: who the owner is, whether it was given up, and the heart that keeps it alive."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence

from interlock.errors import LeaseLostError

from ..levels import TRANSIT_S
from .message import Message, PoolState, PoolTerms, Reply
from .owners import Heart, LapsedError, lost, stopped
from .protocol import TTL_S, OnLost
from .wire import reply


class BaseLedger(ABC):
    """A `Ledger` but for its storage: see `protocol.py`.

    `ttl_s`: how long an owner that says nothing is believed to live. `on_lost` is called once, from any thread, when
    this owner was given up. `beats=False` starts no thread: then `heartbeat` is the caller's to call.
    """

    def __init__(
        self,
        *,
        owner: str | None = None,
        ttl_s: float = TTL_S,
        transit_s: float = TRANSIT_S,
        on_lost: OnLost | None = None,
        beats: bool = True,
    ) -> None:
        if not ttl_s > 0:
            raise ValueError(f"ttl_s must be above 0 seconds, not {ttl_s}")
        self.owner = owner or f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
        self.fence = 0
        self.ttl_s, self.transit_s = ttl_s, transit_s
        self._on_lost = on_lost
        self._lost: LeaseLostError | None = None
        self._beats = beats
        self._heart: Heart | None = None

    async def open(self) -> None:
        """See `Ledger.open`."""
        if self.fence:
            raise RuntimeError(f"the ledger of {self.owner} is open already")
        await self._enter()
        if self._beats:
            self._heart = Heart(self.owner, self.ttl_s, self._beat_here, self._beats_over, self._give_up)
            self._heart.start()

    async def register(self, terms: Sequence[PoolTerms]) -> Sequence[PoolState]:
        """See `Ledger.register`."""
        self._check()
        return await self._register(sorted(terms, key=lambda one: one.name))

    async def exchange(self, message: Message) -> Reply:
        """See `Ledger.exchange`."""
        self._check()
        try:
            try:
                return await self._exchange(message)
            except LapsedError:
                await self.heartbeat()
                return await self._exchange(message)
        except LeaseLostError as error:
            self._give_up(error)
            raise

    async def heartbeat(self) -> None:
        """See `Ledger.heartbeat`."""
        self._check()
        try:
            try:
                await self._beat(self._awake)
            except LapsedError:
                raise stopped(self.owner) from None
        except LeaseLostError as error:
            self._give_up(error)
            raise

    async def leave(self) -> None:
        """See `Ledger.leave`."""
        await self._stop_heart()
        if self._lost is None and self.fence:
            await self._leave()
            self._lost = lost(self.owner, "it has left")

    async def close(self) -> None:
        """See `Ledger.close`."""
        await self._stop_heart()
        await self._close()

    async def _stop_heart(self) -> None:
        if self._heart is not None:
            await asyncio.to_thread(self._heart.stop)  # a beat under way may take as long as its answer

    @property
    def _awake(self) -> bool:
        return self._heart is None or self._heart.awake

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost
        if not self.fence:
            raise RuntimeError("the ledger is not open: `await ledger.open()` first")

    def _give_up(self, error: LeaseLostError) -> None:
        if self._lost is None:
            self._lost = error
            if self._on_lost is not None:
                self._on_lost(error)

    # What a storage does. `_beat_here` and `_beats_over` run on the heart's thread.

    @abstractmethod
    async def _enter(self) -> None: ...

    @abstractmethod
    async def _register(self, terms: Sequence[PoolTerms]) -> Sequence[PoolState]: ...

    @abstractmethod
    async def _exchange(self, message: Message) -> Reply: ...

    @abstractmethod
    async def _beat(self, revive: bool) -> None: ...

    @abstractmethod
    async def _leave(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    @abstractmethod
    def _beat_here(self, revive: bool) -> None: ...

    def _beats_over(self) -> None:
        """The heart has stopped: its connection can be closed."""
        return


def kept(names: Sequence[str], granted: Sequence[int], states: Sequence[float]) -> str:
    """A reply as it is kept for a message that is sent again."""
    return json.dumps([names, granted, states])


def reply_of(seq: int, text: str) -> Reply:
    names, granted, states = json.loads(text)
    return reply(seq, names, granted, states)
