"""Standard output as rich draws on it."""

from __future__ import annotations

from rich.console import Console

PIPED_WIDTH = 160  # columns: a file or a pipe has no edge, and a table cut off says too little


def screen() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=PIPED_WIDTH, highlight=False)
