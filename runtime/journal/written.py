"""What follows once a row is committed, whatever kind of answer stands for that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


def when_written(written: Awaitable[None], then: Callable[[BaseException | None], None]) -> None:
    """Call `then` once, with what went wrong: at once where that is known by now."""
    if not isinstance(written, asyncio.Future):
        try:
            next(written.__await__())
        except StopIteration:
            then(None)
            return
        except Exception as error:
            then(error)
            return
        raise TypeError(f"a journal answers with a future, or with what is over, not with {type(written).__name__}")
    written.add_done_callback(lambda done: then(asyncio.CancelledError() if done.cancelled() else done.exception()))
