"""How a worker hears that there may be something to claim.

On Postgres it listens: whoever puts runs there has the server tell every worker, once a commit. A connection that was
lost is made again; what was said meanwhile is not heard, so there is a slow look behind it. A file tells nobody: there
the look is all there is, and it is cheap.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from ..store.queue import CHANNEL

if TYPE_CHECKING:
    from ..store.place import Place

log = logging.getLogger("interlock.runtime")

#: Seconds between two looks at a queue that tells, and at one that does not.
TOLD_EVERY_S, UNTOLD_EVERY_S = 5.0, 0.5
FIRST_RETRY_S, LONGEST_RETRY_S = 0.2, 10.0


class Waker:
    """`woken` is set when something may have been put there. `every_s` is how often to look all the same."""

    def __init__(self, place: Place) -> None:
        self.woken = asyncio.Event()
        self._place = place
        self._task: asyncio.Task[None] | None = None
        self._listening = False

    @property
    def every_s(self) -> float:
        return TOLD_EVERY_S if self._listening else UNTOLD_EVERY_S

    async def __aenter__(self) -> Waker:
        if self._place.kind == "postgresql":
            self._task = asyncio.create_task(self._listen(), name="interlock-listen")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def wait(self, longest_s: float) -> None:
        """Until woken, `every_s`, or `longest_s`."""
        try:
            async with asyncio.timeout(min(self.every_s, longest_s)):
                await self.woken.wait()
        except TimeoutError:
            return

    async def _listen(self) -> None:
        import asyncpg

        retry_s = FIRST_RETRY_S
        while True:
            gone = asyncio.Event()
            connection: Any = None
            try:
                connection = await asyncpg.connect(self._place.dsn, timeout=10)
                connection.add_termination_listener(lambda _: gone.set())  # noqa: B023 - of this connection
                await connection.add_listener(CHANNEL, lambda *_: self.woken.set())
                self._listening, retry_s = True, FIRST_RETRY_S
                self.woken.set()  # what was said before is looked at now
                await gone.wait()
            except Exception as error:  # whatever it is, nobody awaits this task, and there is the look behind it
                level = logging.WARNING if retry_s == FIRST_RETRY_S else logging.DEBUG  # an outage is said once
                log.log(level, "the queue cannot be listened to (%s): it is looked at instead", type(error).__name__)
            finally:
                self._listening = False
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, LONGEST_RETRY_S)
