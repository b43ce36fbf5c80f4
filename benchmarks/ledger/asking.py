"""Callers of one process who share one message in flight: the least that a courier is, and nothing of the line.

What waits goes with the next message, at most `MOST_ASKS` of it, and what was given back meanwhile goes along.
"""

from __future__ import annotations

import asyncio
from collections import deque

from interlock.admission.charges import Charge
from interlock.admission.ledger import MOST_ASKS, Ask, Ledger, Message, Part, Settle


class Asking:
    """`reserve` and `settle` on one pool, for callers of one event loop."""

    def __init__(self, ledger: Ledger, pool: str) -> None:
        self._ledger, self._pool = ledger, pool
        self._waiting: deque[tuple[Ask, asyncio.Future[None]]] = deque()
        self._sent, self._back, self._slots = [0.0] * 4, [0.0] * 4, 0
        self._seq = self._keys = 0
        self._wanted = asyncio.Event()
        self.messages = 0

    async def reserve(self, charge: Charge) -> None:
        """Returns when it was granted."""
        self._keys += 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        part = Part(pool=self._pool, charge=charge, slots=1)
        self._waiting.append((Ask(key=self._keys, parts=(part,)), done))
        self._wanted.set()
        await done

    def settle(self, reserved: Charge, used: Charge) -> None:
        """It was sent and has ended."""
        sent, back = self._sent, self._back
        for part in range(4):
            sent[part] += reserved[part]
            back[part] += reserved[part] - used[part]
        self._slots += 1

    async def run(self) -> None:
        """Carry messages until cancelled."""
        while True:
            await self._wanted.wait()
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_ASKS))]
            settles: tuple[Settle, ...] = ()
            if self._slots:
                sent, back = Charge(*self._sent), Charge(*self._back)
                settles = (Settle(pool=self._pool, sent=sent, back=back, slots=self._slots),)
                self._sent, self._back, self._slots = [0.0] * 4, [0.0] * 4, 0
            self._seq += 1
            message = Message(
                owner=self._ledger.owner,
                fence=self._ledger.fence,
                seq=self._seq,
                settles=settles,
                asks=tuple([ask for ask, _ in taken]),
            )
            reply = await self._ledger.exchange(message)
            self.messages += 1
            granted = set(reply.granted)
            refused = []
            for place, one in enumerate(taken):
                if place in granted:
                    one[1].set_result(None)
                else:
                    refused.append(one)
            self._waiting.extendleft(reversed(refused))
            if not self._waiting:
                self._wanted.clear()
            if refused:
                await asyncio.sleep(max(reply.pools[self._pool].fit_in_s or 0.0, 0.001))
