"""Whether a `base_url` is an address that a request can be sent to. Pure: the catalog asks when it is loaded, a client
before its first call, for entries that were made by hand."""

from __future__ import annotations

from urllib.parse import urlsplit

#: What to write instead.
FORM = "write it as http://HOST:PORT/PATH or https://HOST/PATH"


def wrong_with(url: str) -> str | None:
    """What is wrong, so that it continues "the base_url ..."; None: nothing. It repeats nothing of the address."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return "holds a character that no address has"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is no address"
    if parts.scheme not in ("http", "https"):
        return "begins with neither http:// nor https://"
    if not host or not host.strip("."):
        return "has no host"
    if parts.username is not None or parts.password is not None:
        return "holds a user or a password: secrets are credentials"
    return "holds a query or a fragment" if parts.query or parts.fragment else None
