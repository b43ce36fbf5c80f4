"""Workers: runs that are put into the store's queue, and processes that claim them and see them through.

    enqueueing  from a pipeline's call to a row of the queue
    fitting     whether a pipeline can be called with the arguments that are put there for it
    waking      how a worker hears that there is something to claim: NOTIFY, or a look now and then
    worker      Worker: claims, runs, watches for what is asked of its runs, drains

Only `interlock.runtime` imports it. A worker is one process of many: it pulls, nobody assigns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .worker import Worker, WorkerSettings

__all__ = ["Worker", "WorkerSettings"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from . import worker

        return getattr(worker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
