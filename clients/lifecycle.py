"""The one path of a wire request: permit, sent, outcome, close, record. Exactly once, however it ends.

    attempt = CallAttempt(seat, entry, environment, Kind.CHAT, input_tokens, output_tokens, request_hash)
    attempt.sent()                              # before the first byte leaves
    attempt.learn(request_id=..., usage=...)    # as it becomes known; a cancelled call is settled to it
    await attempt.succeed(usage=...)            # or: await attempt.fail(error), await attempt.abandon()

The three endings close the permit and queue the record before they return: nothing is lost when the caller is being
cancelled and cannot await. Awaiting one waits for the commit and gives the record. Only the first ending counts; a
later one returns the first. What is written where:

| ending                       | usage in the record                               | cost                              |
|------------------------------|---------------------------------------------------|-----------------------------------|
| completed                    | as reported; what is missing is estimated, flagged | of that usage                    |
| refused with an error status | none (an error is not billed)                     | 0                                 |
| lost or timed out            | the reservation, flagged                          | of that: the provider may bill it |
| cancelled, abandoned         | what was seen so far, flagged                     | of that                           |
| never sent                   | none                                              | 0                                 |

A cost is None wherever the entry has no price.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from interlock.admission.clock import Clock
from interlock.admission.outcome import CallOutcome, Dimension, OutcomeKind, ReportedLimit
from interlock.catalog.entry import ModelEntry
from interlock.catalog.pricing import cost as price_of
from interlock.catalog.usage import Usage
from interlock.catalog.words import Kind
from interlock.errors import QuotaExhaustedError, UpstreamError

from .environment import ClientEnvironment
from .first_byte import telling
from .outcomes import CANCELLED, OK, outcome_of
from .record import CallRecord, CallSeat

#: An error's text in a record is cut to this many characters.
ERROR_TEXT_LIMIT = 2_000
#: Statuses behind which a request may still have been served and billed.
_MAYBE_SERVED = frozenset({408, 499, 504, 522, 524})

_NOT_BILLED = frozenset({OutcomeKind.RATE_LIMITED, OutcomeKind.OVERLOADED, OutcomeKind.REJECTED, OutcomeKind.UNSENT})


class Ending:
    """An attempt that has ended: `record` is written already; awaiting this waits until it is committed."""

    __slots__ = ("_committed", "record")

    def __init__(self, record: CallRecord, committed: Awaitable[None]) -> None:
        self.record, self._committed = record, committed

    def __await__(self) -> Generator[Any, None, CallRecord]:
        committed = self._committed
        if isinstance(committed, asyncio.Future) and not committed.done():
            committed = asyncio.shield(committed)  # whoever stops waiting leaves the row to be written
        yield from committed.__await__()
        return self.record


@dataclass(slots=True)
class Known:
    """What has become known of a call so far."""

    usage: Usage | None = None
    request_id: str | None = None
    served_model: str | None = None
    stop_reason: str | None = None
    reported: Mapping[Dimension, ReportedLimit] | None = None
    text: str | None = None
    decision: Mapping[str, Any] | None = None


class CallAttempt:
    """One wire request from its permit to its record."""

    __slots__ = (
        "_ending", "_environment", "_first_piece_at_s", "_input_tokens", "_output_tokens", "_permit", "_request_hash",
        "_seat", "_sent_at_s", "_started_at", "entry", "kind", "known",
    )  # fmt: skip

    def __init__(
        self,
        seat: CallSeat,
        entry: ModelEntry,
        environment: ClientEnvironment,
        kind: Kind,
        input_tokens: int,
        output_tokens: int,
        request_hash: str,
        *,
        continuation: bool = False,
    ) -> None:
        self.entry, self.kind, self.known = entry, kind, Known()
        self._seat, self._environment, self._request_hash = seat, environment, request_hash
        self._input_tokens, self._output_tokens = input_tokens, output_tokens
        further: dict[str, Any] = {"continuation": True} if continuation else {}
        self._permit = seat.permit(input_tokens=input_tokens, output_tokens=output_tokens, **further)
        self._started_at: datetime | None = None
        self._sent_at_s: float | None = None
        self._first_piece_at_s: float | None = None
        self._ending: Ending | None = None

    @property
    def ended(self) -> bool:
        return self._ending is not None

    @property
    def clock(self) -> Clock:
        return self._environment.clock

    @property
    def was_sent(self) -> bool:
        return self._sent_at_s is not None

    def sent(self) -> None:
        """Call right before the request goes to the wire. A later call changes nothing."""
        if self._sent_at_s is None and self._ending is None:
            self._permit.sent()
            self._started_at, self._sent_at_s = self._environment.wall(), self._environment.clock.now()

    @contextmanager
    def leaving(self, *, tells: bool) -> Iterator[None]:
        """Around the sending. `tells`: the transport tells when the first byte leaves; until then nothing was sent.
        Otherwise it counts as sent from here on. What has been answered was sent."""
        if not tells:
            self.sent()
        with telling(self.sent):
            yield
        self.sent()

    def placed(self, failure: Exception) -> Exception:
        """The failure of the sending, told whether anything had left. An error status is an answer: it had."""
        if isinstance(failure, UpstreamError):
            if failure.status is not None and failure.sent:
                self.sent()
            elif not self.was_sent:
                failure.sent = False
        return failure

    def first_piece(self) -> None:
        """Call when the first part of a streamed answer is there."""
        if self._first_piece_at_s is None:
            self._first_piece_at_s = self._environment.clock.now()

    def learn(
        self,
        *,
        usage: Usage | None = None,
        request_id: str | None = None,
        served_model: str | None = None,
        stop_reason: str | None = None,
        reported: Mapping[Dimension, ReportedLimit] | None = None,
        text: str | None = None,
        decision: Mapping[str, Any] | None = None,
    ) -> None:
        """Note what has become known. None leaves what was known before."""
        known = self.known
        known.usage = usage if usage is not None else known.usage
        known.request_id = request_id or known.request_id
        known.served_model = served_model or known.served_model
        known.stop_reason = stop_reason or known.stop_reason
        known.reported = reported or known.reported
        known.text = text if text is not None else known.text
        known.decision = decision or known.decision

    def succeed(
        self,
        *,
        usage: Usage | None = None,
        request_id: str | None = None,
        served_model: str | None = None,
        stop_reason: str | None = None,
        reported: Mapping[Dimension, ReportedLimit] | None = None,
        text: str | None = None,
    ) -> Ending:
        """The provider served it. `usage` None is unknown: the reservation is recorded, flagged estimated."""
        self.learn(usage=usage, request_id=request_id, served_model=served_model, stop_reason=stop_reason,
                   reported=reported, text=text)  # fmt: skip
        return self._end(OutcomeKind.COMPLETED, OK)

    def fail(self, error: BaseException, *, kind: OutcomeKind | None = None) -> Ending:
        """It ended with `error`. `kind` overrides how it is settled, where the error stands for another (a stream
        that was interrupted by an overload)."""
        settled, code = outcome_of(error)
        if isinstance(error, UpstreamError):
            self.learn(usage=error.usage, request_id=error.request_id, reported=error.reported)
            error.reported = None
        return self._end(kind or settled, code, error)

    def abandon(self, usage: Usage | None = None) -> Ending:
        """Nobody wants the answer any more: settled to what was seen of it."""
        self.learn(usage=usage)
        return self._end(OutcomeKind.ABANDONED, CANCELLED)

    def _end(self, kind: OutcomeKind, code: str, error: BaseException | None = None) -> Ending:
        if self._ending is None:
            kind = kind if self.was_sent else OutcomeKind.UNSENT
            usage = self._settled_usage(kind, error)
            self._permit.close(self._outcome(kind, usage, error))
            record = self._record(kind, code, error, usage)
            self._ending = Ending(record, self._seat.record(record))
        return self._ending

    def _outcome(self, kind: OutcomeKind, usage: Usage | None, error: BaseException | None) -> CallOutcome:
        hint = error.retry_after_s if isinstance(error, UpstreamError) else None
        settles = kind in (OutcomeKind.COMPLETED, OutcomeKind.ABANDONED)
        return CallOutcome(
            kind=kind,
            usage=usage if settles else None,
            retry_after_s=hint,
            reported=self.known.reported or {},
            day_spent=isinstance(error, QuotaExhaustedError) and error.per_day,
        )

    def _settled_usage(self, kind: OutcomeKind, error: BaseException | None) -> Usage | None:
        usage = self.known.usage
        if kind is OutcomeKind.COMPLETED:
            return self._filled(usage or Usage(), self._output_tokens)
        if kind is OutcomeKind.ABANDONED:
            return replace(self._filled(usage or Usage(), 0), estimated=True)
        if kind is OutcomeKind.UNKNOWN and not _answered_with_an_error(error):
            return replace(self._filled(usage or Usage(), self._output_tokens), estimated=True)
        return usage

    def _filled(self, usage: Usage, output_tokens: int) -> Usage:
        """Unknown counts get ours, and the flag that says so."""
        if usage.input_tokens is not None and usage.output_tokens is not None:
            return usage
        return replace(
            usage,
            input_tokens=self._input_tokens if usage.input_tokens is None else usage.input_tokens,
            output_tokens=output_tokens if usage.output_tokens is None else usage.output_tokens,
            estimated=True,
        )

    def _cost(self, kind: OutcomeKind, usage: Usage | None, error: BaseException | None) -> Decimal | None:
        prices = self.entry.prices
        if prices is None:
            return None
        if usage is None:
            unbilled = kind in _NOT_BILLED or _answered_with_an_error(error)
            return Decimal(0) if unbilled else None
        return price_of(prices, usage)

    def _record(self, kind: OutcomeKind, code: str, error: BaseException | None, usage: Usage | None) -> CallRecord:
        entry, known, environment = self.entry, self.known, self._environment
        sent_at_s, piece_at_s = self._sent_at_s, self._first_piece_at_s
        prices = entry.prices
        return CallRecord(
            kind=self.kind,
            model=entry.id,
            provider=entry.provider,
            wire_model_id=entry.wire_model_id,
            served_model=known.served_model,
            request_id=known.request_id,
            usage=usage or Usage(),
            cost=self._cost(kind, usage, error),
            currency=prices.currency if prices is not None else None,
            price_as_of=prices.as_of.isoformat() if prices is not None and prices.as_of is not None else None,
            started_at=self._started_at or environment.wall(),
            latency_s=0.0 if sent_at_s is None else max(environment.clock.now() - sent_at_s, 0.0),
            first_piece_s=None if sent_at_s is None or piece_at_s is None else max(piece_at_s - sent_at_s, 0.0),
            outcome=code,
            error=None if error is None else environment.redactor.redact(_text_of(error))[:ERROR_TEXT_LIMIT],
            stop_reason=known.stop_reason,
            unmetered=self._permit.unmetered,
            undeclared=self._permit.undeclared,
            request_hash=self._request_hash,
            text=None if known.text is None or not environment.keep_text else environment.redactor.redact(known.text),
            decision=known.decision,
        )


def _answered_with_an_error(error: BaseException | None) -> bool:
    """Whether the provider said no with an error status, which it does not bill."""
    status = error.status if isinstance(error, UpstreamError) else None
    return status is not None and status >= 400 and status not in _MAYBE_SERVED


def _text_of(error: BaseException) -> str:
    return str(error) or type(error).__name__
