"""The body of an error, made readable before an SDK reads it.

What an error is, its status and its headers say. An SDK reads the body first, and where that is cut off, badly packed
or not UTF-8 it raises what it stumbled over, and the status is lost: a 429 would be no 429, and a wrong key would be
asked with again. A body that does not end is waited for a little, or the 429 would be a timeout.
"""

from __future__ import annotations

import json

import httpx2

from interlock.admission.clock import Clock

from ..watch import AttemptTimeout, Watch

#: Seconds that an error's body may take after its headers.
GRACE_S = 3.0
#: Where a request carries when it was begun.
_BEGAN = "interlock_began_s"


class ErrorBodies:
    """Two event hooks of an httpx2 client whose calls may take `timeout_s`, and be silent for `idle_timeout_s`."""

    def __init__(self, clock: Clock, *, timeout_s: float, idle_timeout_s: float) -> None:
        self._clock, self._timeout_s, self._idle_timeout_s = clock, timeout_s, idle_timeout_s

    async def on_request(self, request: httpx2.Request) -> None:
        request.extensions = {**request.extensions, _BEGAN: self._clock.now()}

    async def on_response(self, response: httpx2.Response) -> None:
        if response.status_code >= 300:
            response._content = _readable(await self._read(response))

    async def _read(self, response: httpx2.Response) -> bytes:
        parts: list[bytes] = []
        watch = Watch(self._clock, total_s=self._grace_s(response.request))
        try:
            with watch:
                async for part in response.aiter_bytes():
                    parts.append(part)
                return b"".join(parts)
        except (httpx2.HTTPError, AttemptTimeout):  # it has let go of its connection
            whole = b"".join(parts)
            return whole if _is_json(whole) else b""
        finally:
            watch.stop()

    def _grace_s(self, request: httpx2.Request) -> float:
        """Never up to the call's own time, at which nothing would be known but that."""
        left_s: float = request.extensions[_BEGAN] + self._timeout_s - self._clock.now()
        return min(GRACE_S, self._idle_timeout_s / 2, max(left_s, 0.0) / 2)


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def _readable(content: bytes) -> bytes:
    try:
        json.loads(content)
    except RecursionError:
        return b""
    except ValueError:
        return content.decode(errors="replace").encode()
    return content
