"""What the end of a call means: to admission (what to settle) and to the record (one stable word)."""

from __future__ import annotations

import asyncio

from interlock.admission.outcome import OutcomeKind
from interlock.errors import (
    ContextWindowExceededError,
    CredentialError,
    InterlockError,
    InvalidRequestError,
    MalformedResponseError,
    OutputTruncatedError,
    OverloadedError,
    ProviderRefusalError,
    QuotaExhaustedError,
    RateLimitedError,
    ResponseShapeError,
    StreamBufferError,
    UpstreamError,
)

OK = "ok"
CANCELLED = "cancelled"
UNCLASSIFIED = "unclassified"

_BY_CLASS: tuple[tuple[type[UpstreamError], OutcomeKind], ...] = (
    (RateLimitedError, OutcomeKind.RATE_LIMITED),
    (OverloadedError, OutcomeKind.OVERLOADED),
    (QuotaExhaustedError, OutcomeKind.REJECTED),
    (CredentialError, OutcomeKind.REJECTED),
    (InvalidRequestError, OutcomeKind.REJECTED),
    (StreamBufferError, OutcomeKind.ABANDONED),
)
#: The provider did its work, and the answer was not what was wanted: paid, and settled to what it reported.
_ANSWERED = (ProviderRefusalError, OutputTruncatedError, ResponseShapeError, ContextWindowExceededError)


def outcome_of(error: BaseException) -> tuple[OutcomeKind, str]:
    """How admission settles a call that ended with `error`, and the word its record keeps."""
    if isinstance(error, (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)):
        return OutcomeKind.ABANDONED, CANCELLED
    if not isinstance(error, UpstreamError):
        return OutcomeKind.UNKNOWN, error.code if isinstance(error, InterlockError) else UNCLASSIFIED
    return _kind_of(error), error.code


def _kind_of(error: UpstreamError) -> OutcomeKind:
    if not error.sent:
        return OutcomeKind.UNSENT
    if isinstance(error, _ANSWERED):
        refused_whole = error.usage is None and error.status is not None and error.status >= 400
        return OutcomeKind.REJECTED if refused_whole else OutcomeKind.COMPLETED
    if isinstance(error, MalformedResponseError) and error.usage is not None:
        return OutcomeKind.COMPLETED
    return next((kind for class_, kind in _BY_CLASS if isinstance(error, class_)), OutcomeKind.UNKNOWN)
