"""Text that any database takes. Models do answer NUL and lone surrogates; a paid call must not be lost for it.

Three characters cannot stand in a row as they are: NUL (Postgres refuses it, SQLite's functions stop at it), a lone
surrogate (not encodable as UTF-8) and the mark itself, U+FDD0, which Unicode promises never to give a meaning. Each
becomes the mark and four hexadecimal digits, so nothing that merely looks like an escape is ever changed.
"""

from __future__ import annotations

import re

_MARK = "\ufdd0"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff\ufdd0]")
_ESCAPED = re.compile("\ufdd0([0-9a-f]{4})")


def storable(text: str) -> str:
    if _UNSTORABLE.search(text) is None:
        return text
    return _UNSTORABLE.sub(lambda found: f"{_MARK}{ord(found.group()):04x}", text)


def restored(text: str) -> str:
    """The inverse of `storable`, for every text."""
    if _MARK not in text:
        return text
    return _ESCAPED.sub(lambda found: chr(int(found.group(1), 16)), text)
