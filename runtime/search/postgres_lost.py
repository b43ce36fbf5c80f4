"""A server that goes away, and is waited for: a transaction that was cut off is begun again.

Each method of a collection is one transaction, and done twice it leaves what it leaves done once: so whether its COMMIT
arrived before the connection was lost makes no difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar, cast

from interlock.errors import StoreError

Method = TypeVar("Method", bound=Callable[..., Coroutine[Any, Any, Any]])

#: For so long a server may be away, seconds; a restart takes less.
PATIENCE_S = 30.0
#: Seconds between two tries. The first one waits for nothing: mostly it is an old connection that has gone.
AGAIN_S = 0.5


class LostConnectionError(StoreError):
    """The server went away, or is not there yet."""


def is_lost(error: Exception) -> bool:
    """Whether asyncpg says that the connection has gone, or that the server is going or coming."""
    import asyncpg

    gone = (OSError, asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError)
    if isinstance(error, asyncpg.QueryCanceledError):
        return False
    return isinstance(error, gone) or (isinstance(error, asyncpg.InterfaceError) and "connection" in str(error))


def until_it_is_back(method: Method) -> Method:
    """The method, again where the connection was lost. LostConnectionError where the server stays away."""

    @wraps(method)
    async def patiently(*given: Any, **named: Any) -> Any:
        now = asyncio.get_running_loop().time
        first, until = True, now() + PATIENCE_S
        while True:
            try:
                return await method(*given, **named)
            except LostConnectionError:
                if now() >= until:
                    raise
            await asyncio.sleep(0 if first else AGAIN_S)
            first = False

    return cast("Method", patiently)
