"""One request and its answer, for clients that do not stream: send once, read, end the attempt, raise typed errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Protocol, TypeVar, cast

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.usage import Usage
from interlock.credentials.redaction import Redactor
from interlock.errors import TransientUpstreamError, UpstreamError

from .lifecycle import CallAttempt
from .record import CallRecord
from .watch import AttemptTimeout, Watch


class WireAnswer(Protocol):
    """What every answer tells beside its content. None is unknown."""

    @property
    def usage(self) -> Usage | None: ...
    @property
    def request_id(self) -> str | None: ...
    @property
    def served_model(self) -> str | None: ...
    @property
    def reported(self) -> Mapping[Dimension, ReportedLimit] | None: ...


class Transport(Protocol):
    """How a request is carried: what its failures mean, and whether it tells when the first byte leaves."""

    tells_first_byte: ClassVar[bool]

    def failure(self, error: Exception) -> Exception:
        """A typed error without a chain into an SDK; what is no provider's doing comes back as it is."""
        ...

    def limits_in(self, error: Exception) -> Mapping[Dimension, ReportedLimit]:
        """What an error's response says of the account's limits."""
        ...


A = TypeVar("A", bound=WireAnswer)
R = TypeVar("R")


async def exchange(
    attempt: CallAttempt,
    send: Callable[[], Awaitable[A]],
    read: Callable[[A], Awaitable[R]],
    *,
    timeout_s: float,
    redactor: Redactor,
    transport: Transport | None = None,
) -> tuple[R, CallRecord]:
    """`read(await send())` under `timeout_s` seconds of the environment's clock, with the attempt ended exactly once,
    whatever happens. Errors of `send` are read by the `transport`, where there is one.

    An answer that cannot be read was still served: it is settled and recorded with the usage it reported. The record
    is committed before the result is returned. Errors of `send` and `read` pass through; a timeout becomes
    TransientUpstreamError; a cancelled call is abandoned and its record queued. Typed errors leave scrubbed.
    """
    answer: A | None = None
    result: R | None = None
    failure: Exception | None = None
    watch = Watch(attempt.clock, total_s=timeout_s)
    try:
        with watch:
            with attempt.leaving(tells=transport is not None and transport.tells_first_byte):
                answer = await send()
            attempt.learn(
                usage=answer.usage,
                request_id=answer.request_id,
                served_model=answer.served_model,
                reported=answer.reported,
            )
            result = await read(answer)
    except asyncio.CancelledError:
        attempt.abandon()
        raise
    except Exception as error:
        told: Exception = error
        if isinstance(error, AttemptTimeout):
            told = TransientUpstreamError(
                f"{attempt.entry.id} did not answer within {timeout_s:g} s", provider_code="attempt_timeout"
            )
        elif transport is not None and answer is None:
            attempt.learn(reported=transport.limits_in(error))
            told = transport.failure(error)
        if answer is None:
            told = attempt.placed(told)
        if isinstance(told, UpstreamError):
            redactor.scrub(told)
            _complete(told, attempt, answer)
        failure = told
    except BaseException:
        attempt.abandon()
        raise
    finally:
        watch.stop()
    if failure is not None:
        # Raised outside the handler, so that no SDK error (and no request header) hangs on its chain.
        await attempt.fail(failure)
        raise failure
    return cast("R", result), await attempt.succeed()


def _complete(error: UpstreamError, attempt: CallAttempt, answer: WireAnswer | None) -> None:
    """Fill in what the place that raised could not know."""
    error.model = error.model or attempt.entry.id
    error.provider = error.provider or attempt.entry.provider
    if answer is not None:
        error.usage = error.usage or answer.usage
        error.request_id = error.request_id or answer.request_id
