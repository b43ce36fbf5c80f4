"""How the command line tells an error: one sentence on standard error, exit code 2, no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from interlock.errors import InterlockError


def sentence(error: BaseException) -> str:
    """The error's message on one line; its class where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def plain_errors() -> Iterator[None]:
    """Every error of ours ends the command with its sentence."""
    try:
        yield
    except InterlockError as error:
        typer.echo(f"interlock: {sentence(error)}", err=True)
        raise typer.Exit(2) from None
