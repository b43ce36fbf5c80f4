"""token-throttle, which shares its limits through Redis or an SQLite file: reserve, report what was used."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from loop import RESERVED, USED, callers
from token_throttle import (
    PerModelConfig,
    Quota,
    RateLimiter,
    RedisBackendBuilder,
    SqliteBackendBuilder,
    UsageQuotas,
)


def backend(mode: str, url: str, count: int) -> Any:
    if mode == "sqlite":
        return SqliteBackendBuilder(url, key_prefix="bench")
    import redis.asyncio

    pool = redis.asyncio.BlockingConnectionPool(
        connection_class=redis.asyncio.UnixDomainSocketConnection, path=url, max_connections=3 * count, timeout=30
    )
    return RedisBackendBuilder(redis.asyncio.Redis(connection_pool=pool), key_prefix="bench")


async def main(url: str, mode: str, count: int, seconds: float) -> None:
    quotas = UsageQuotas(
        [
            Quota(metric="requests", limit=60_000_000, per_seconds=60),
            Quota(metric="tokens", limit=60_000_000_000, per_seconds=60),
        ]
    )
    limiter = RateLimiter(PerModelConfig(quotas=quotas), backend=backend(mode, url, count))
    usage = {"requests": 1, "tokens": RESERVED}

    async def once() -> None:
        async with limiter.reserve(usage, model="simulated", usage_on_error=usage) as held:
            held.set_actual_usage({"requests": 1, "tokens": USED})

    await callers(once, count, seconds)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
