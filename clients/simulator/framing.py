"""Writing a stream's events in unusual but valid ways."""

from __future__ import annotations

from collections.abc import Iterator

from .script import Framing


class Framer:
    """Rewrites the bytes of events, one after the other, as `framing` says. A binary stream is only cut elsewhere."""

    def __init__(self, framing: Framing, *, binary: bool = False) -> None:
        self._framing = framing if not binary else Framing(bytes_per_write=framing.bytes_per_write)
        self._first = True

    def writes(self, event: bytes, *, last: bool = False) -> Iterator[bytes]:
        """What is written for one event, write by write."""
        framing = self._framing
        if framing.comments:
            event = b": a comment\n" + event
        if not framing.space_after_colon:
            lines = event.split(b"\n")
            event = b"\n".join(line.replace(b": ", b":", 1) if line[:1] != b":" else line for line in lines)
        if last and not framing.final_blank_line:
            event = event[:-1]
        if framing.line_ending != "\n":
            event = event.replace(b"\n", framing.line_ending.encode())
        if framing.bom and self._first:
            event = b"\xef\xbb\xbf" + event
        self._first = False
        size = framing.bytes_per_write or len(event)
        for start in range(0, len(event), size):
            yield event[start : start + size]
