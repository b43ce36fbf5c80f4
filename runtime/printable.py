"""What somebody else wrote, as a terminal may be given it."""

from __future__ import annotations

from rich.text import Text


def cell(text: str) -> Text:
    """The text as it is: no markup (`interlock[openai]`), and nothing that a terminal would obey."""
    return Text("".join(char if char.isprintable() else "?" for char in text))
