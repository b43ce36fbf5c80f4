"""AWS event streams: frames of headers and a payload between two checksums (`application/vnd.amazon.eventstream`).

A frame is its length, the length of its headers, the CRC of those two, the headers, the payload, and the CRC of all
before it; big endian, CRC-32 as zlib has it. A header is its name after a length byte, a type byte (7: text), and the
text after a length of two bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any

from .wire import encode

_TEXT = 7
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    packed = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", _TEXT, len(value.encode())) + value.encode()
        for name, value in headers.items()
    )
    lengths = struct.pack("!II", len(packed) + len(payload) + 16, len(packed))
    begun = lengths + struct.pack("!I", zlib.crc32(lengths)) + packed + payload
    return begun + struct.pack("!I", zlib.crc32(begun))


def event_frame(name: str, payload: Mapping[str, Any]) -> bytes:
    """An event. Bedrock pads each payload with a `p` of changing length, so that sizes say nothing of the text."""
    padded = dict(payload)
    padded["p"] = _ALPHABET[: 1 + zlib.crc32(encode(padded)) % len(_ALPHABET)]
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, encode(padded))


def exception_frame(name: str, message: str) -> bytes:
    """An error inside a stream; `name` is lower camel."""
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, encode({"message": message}))
