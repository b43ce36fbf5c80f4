"""The body of an error, made readable before an SDK reads it.

What an error is, its status and its headers say. An SDK reads the body first, and where that is cut off, badly packed
or not UTF-8 it raises what it stumbled over, and the status is lost: a 429 would be no 429, and a wrong key would be
asked with again.
"""

from __future__ import annotations

import json

import httpx2


async def read_error_body(response: httpx2.Response) -> None:
    """An httpx2 event hook (`event_hooks={"response": [read_error_body]}`)."""
    if response.status_code < 300:
        return
    try:
        content = await response.aread()
    except httpx2.HTTPError:
        content = b""  # it has let go of its connection
    response._content = _readable(content)


def _readable(content: bytes) -> bytes:
    try:
        json.loads(content)
    except RecursionError:
        return b""
    except ValueError:
        return content.decode(errors="replace").encode()
    return content
