"""Strings of the formats that JSON schema names."""

from __future__ import annotations

import base64
import uuid


def formatted(name: str | None, word: str, choice: int) -> str | None:
    """A string of that format, made of a word where one may stand in it; None for a format not known here."""
    plain = "".join(char for char in word.lower() if char.isascii() and char.isalnum()) or "example"
    day, month, hour, minute = choice % 28 + 1, choice % 12 + 1, choice % 24, choice % 60
    date, time = f"2026-{month:02d}-{day:02d}", f"{hour:02d}:{minute:02d}:00"
    found = {
        "date": date,
        "date-time": f"{date}T{time}Z",
        "time": f"{time}Z",
        "duration": f"PT{choice % 59 + 1}M",
        "email": f"{plain}@example.com",
        "idn-email": f"{plain}@example.com",
        "name-email": f"{plain} <{plain}@example.com>",
        "hostname": f"{plain}.example.com",
        "uri": f"https://example.com/{plain}",
        "uri-reference": f"/{plain}",
        "ipv4": f"192.0.2.{choice % 254 + 1}",
        "ipv6": f"2001:db8::{choice % 0xFFFF:x}",
        "ipvanyaddress": f"192.0.2.{choice % 254 + 1}",
        "ipv4network": "192.0.2.0/24",
        "ipv4interface": "192.0.2.1/24",
        "ipv6network": "2001:db8::/32",
        "ipv6interface": "2001:db8::1/32",
        "ipvanynetwork": "192.0.2.0/24",
        "ipvanyinterface": "192.0.2.1/24",
        "uuid": str(uuid.UUID(int=choice | 4 << 76 | 2 << 62, version=4)),
        "json-pointer": f"/{plain}",
        "regex": plain,
        "base64": base64.b64encode(plain.encode()).decode(),
        "base64url": base64.urlsafe_b64encode(plain.encode()).decode(),
        "json-string": f'"{plain}"',
        "path": f"/{plain}",
        "color": f"#{choice % 0xFFFFFF:06x}",
    }
    return found.get(name) if name is not None else None
