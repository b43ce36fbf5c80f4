"""Options that several commands have, each with one meaning and one help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

STORE = "sqlite:///interlock.db"

Catalog = Annotated[Path | None, typer.Option("--catalog", help="Catalog file. Default: the one that ships.")]
Records = Annotated[str, typer.Option("--store", help="Where calls are recorded.")]
Pipeline = Annotated[
    str, typer.Argument(metavar="MODULE:PIPELINE", help="pipelines.py:triage or package.module:triage")
]
MaxCost = Annotated[
    str | None, typer.Option("--max-cost", help='The most this command may spend: "5" (USD) or "5 EUR".')
]
Configure = Annotated[
    str | None,
    typer.Option(
        "--configure",
        metavar="MODULE:FUNCTION",
        help="A function that takes the RuntimeSettings and returns the ones to use: databases, gates ...",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Log what is skipped, chosen, retried.")]
