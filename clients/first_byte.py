"""When a request really leaves: at its first byte, not when an SDK is asked to send it.

In between stand a free connection, a handshake and whatever else is going on in the loop; with a burst of fifty new
connections that is half a second, in which a provider's full bucket does not refill, and ours must not either. So the
template says here what to call (`telling`), and a transport that can tell calls it right before it writes
(`on_request`). Where nothing left, everything that was reserved is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_told: ContextVar[Callable[[], None] | None] = ContextVar("first_byte", default=None)


@contextmanager
def telling(leaves: Callable[[], None]) -> Iterator[None]:
    """`leaves` is called at the first byte of a request that is sent inside. It may be called several times."""
    before = _told.set(leaves)
    try:
        yield
    finally:
        _told.reset(before)


async def on_request(request: Any) -> None:
    """An httpx2 event hook (`event_hooks={"request": [on_request]}`), whatever the transport: it listens to the trace
    of httpcore2 (`http11.send_request_headers.started`, or `http2.`), which comes before anything is written."""
    leaves = _told.get()
    if leaves is None:
        return

    async def trace(event: str, info: dict[str, Any]) -> None:
        # A proxy is asked for a tunnel first; that is not our request.
        if event.endswith(".send_request_headers.started") and info["request"].method != b"CONNECT":
            leaves()

    request.extensions = {**request.extensions, "trace": trace}
