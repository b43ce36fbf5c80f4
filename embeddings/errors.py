"""Errors that name single texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interlock.errors import ContextWindowExceededError, InvalidRequestError

if TYPE_CHECKING:
    from .response import EmbeddingsResponse


class TextError(Exception):
    """What the errors about single texts have in common. `indexes` (0-based) name all of them.

    Where the others were embedded, and paid, `kept` is their response and `kept_indexes` say which texts its vectors
    are of, in order; None where nothing was sent.
    """

    indexes: tuple[int, ...]
    kept: EmbeddingsResponse | None
    kept_indexes: tuple[int, ...]


class BlankTextError(TextError, InvalidRequestError):
    """A text without a character, or that is no valid Unicode, has no vector. `indexes` (0-based) are all texts that
    could not be sent."""

    code = "blank_text"

    def __init__(self, message: str, *, indexes: tuple[int, ...] = (), model: str | None = None) -> None:
        super().__init__(message, model=model, sent=False)
        self.indexes, self.kept, self.kept_indexes = indexes, None, ()


class TextTooLongError(TextError, ContextWindowExceededError):
    """A text is longer than one request of the model may be. `indexes` (0-based) are all that could not be sent, or
    that the provider called too long."""

    code = "text_too_long"

    def __init__(
        self,
        message: str,
        *,
        indexes: tuple[int, ...] = (),
        kept: EmbeddingsResponse | None = None,
        kept_indexes: tuple[int, ...] = (),
        sent: bool = False,
        **known: Any,
    ) -> None:
        super().__init__(message, sent=sent, **known)
        self.indexes, self.kept, self.kept_indexes = indexes, kept, kept_indexes


class TextRefusedError(TextError, InvalidRequestError):
    """The provider takes the other texts and not these."""

    code = "text_refused"

    def __init__(
        self,
        message: str,
        *,
        indexes: tuple[int, ...] = (),
        kept: EmbeddingsResponse | None = None,
        kept_indexes: tuple[int, ...] = (),
        **known: Any,
    ) -> None:
        super().__init__(message, **known)
        self.indexes, self.kept, self.kept_indexes = indexes, kept, kept_indexes


class TooManyRefusedError(InvalidRequestError):
    """So many of a call's texts are refused that naming them would take too many requests."""

    code = "too_many_texts_refused"
