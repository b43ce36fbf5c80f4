"""How the command line tells an error: one sentence on standard error, exit code 2, no traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

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


class OneSentence(TyperGroup):
    """The commands, with what is wrong in their words told like any other error instead of in a box."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        given = (args, prog_name, complete_var)
        if not standalone_mode:
            return super().main(*given, standalone_mode=False, windows_expand_args=windows_expand_args, **extra)
        try:
            code = super().main(*given, standalone_mode=False, windows_expand_args=windows_expand_args, **extra)
        except Exception as error:
            # By its shape: typer brings click inside itself in some versions, and beside it in others.
            told = getattr(error, "format_message", None)
            if told is None or type(error).__name__ == "NoArgsIsHelpError":
                return _as_it_shows_itself(error)
            typer.echo(f"interlock: {_in_words(error, told())}", err=True)
            sys.exit(2)
        sys.exit(code if isinstance(code, int) else 0)


def _in_words(error: Exception, text: str) -> str:
    text = " ".join(text.split()).rstrip(".").replace(": Value error, ", ": ")  # pydantic's own frame
    command = getattr(getattr(error, "ctx", None), "command_path", "interlock")
    return f"{text[:1].lower()}{text[1:]}; see `{command} --help`"


def _as_it_shows_itself(error: Exception) -> Any:
    show = getattr(error, "show", None)
    if show is None:
        raise error
    show()
    sys.exit(getattr(error, "exit_code", 2))
