"""Server-sent events, for a wire whose SDK cannot read them all: lines end in CR, LF or CRLF and in nothing else,
comments and other fields are passed over, and a body that is no event stream at all comes out as one event."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

#: Lines that belong to no event are kept up to this many characters: an error that came as plain JSON.
STRAY_LIMIT = 65_536

_LINE_END = re.compile("\r\n|\r|\n")


class EventDecoder:
    """Bytes in, the `data` of whole events out. `rest` is what the stream ended with."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._pieces: list[str] = []  # of a line that has not ended
        self._after_cr = False
        self._data: list[str] = []
        self._stray: list[str] = []
        self._stray_size = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        text = self._utf8.decode(chunk)
        if self._after_cr and text:
            text, self._after_cr = text.removeprefix("\n"), False
        if not text:
            return
        self._after_cr = text.endswith("\r")
        *whole, left = _LINE_END.split(text)
        for line in whole:
            self._pieces.append(line)
            yield from self._line("".join(self._pieces))
            self._pieces.clear()
        if left:
            self._pieces.append(left)

    def rest(self) -> str | None:
        """What never became an event: plain JSON, where the server sent some instead of a stream. An event that was
        cut off is none."""
        stray = "\n".join([*self._stray, "".join(self._pieces)]).strip()
        return stray if stray[:1] in ("{", "[") else None

    def _line(self, line: str) -> Iterator[str]:
        if not line:
            if self._data:
                data, self._data = "\n".join(self._data), []
                yield data
            return
        field, colon, value = line.partition(":")
        if field == "data":
            self._data.append(value.removeprefix(" ") if colon else "")
        elif field not in ("", "event", "id", "retry") and self._stray_size < STRAY_LIMIT:
            self._stray.append(line)
            self._stray_size += len(line)


async def json_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """The events' data as JSON values. Raises `ValueError` for one that is none."""
    decoder = EventDecoder()
    async for chunk in chunks:
        for data in decoder.feed(chunk):
            yield json.loads(data)
    rest = decoder.rest()
    if rest is not None:
        yield json.loads(rest)
