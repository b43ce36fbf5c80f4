"""Every error that Interlock raises, in one tree.

It stands below all layers, because each of them raises a part of it. An error says what went wrong, where, and what to
do; carries what is known of it as plain attributes; has a stable `code`; and survives pickling, copying and the
journal. No message, attribute or cause holds a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

E = TypeVar("E", bound="InterlockError")


def _restore(cls: type[E], args: tuple[Any, ...], state: Mapping[str, Any]) -> E:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InterlockError(Exception):
    """The root. `code` is stable over versions: match on it across processes, and on the class within one."""

    code: ClassVar[str] = "interlock_error"

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructor's keywords are not in `args`, so pickle's own way would fail for every subclass.
        return _restore, (type(self), self.args, dict(self.__dict__))


def code_of(error: BaseException) -> str:
    """Its stable code; for an error that is not Interlock's, the name of its class: others' codes mean nothing here."""
    return error.code if isinstance(error, InterlockError) else type(error).__name__


# Configuration: the catalog, the settings, what a deployment wrote down.


class ConfigurationError(InterlockError):
    """A setting, a file or an import that cannot be used. The message says which and what to write instead."""

    code = "configuration"


class CatalogError(ConfigurationError):
    """The catalog file is wrong. `file`, `line` (1-based) and `key` (dotted path) say where.

    Where a file has several mistakes the attributes are the first's, and `problems` has a line for each.
    """

    code = "catalog"

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, key: str | None = None
    ) -> None:
        place = ":".join(str(part) for part in (file, line) if part is not None)
        super().__init__(": ".join(part for part in (place, key, message) if part))
        self.file, self.line, self.key = file, line, key
        self.problems: tuple[str, ...] = (str(self),)


class ModelResolutionError(InterlockError):
    """No entry of the catalog can serve what was asked. `skipped` says per entry why, and what would help."""

    code = "model_resolution"

    def __init__(self, message: str, *, skipped: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.skipped = dict(skipped or {})


class StoreError(InterlockError):
    """The store could not be opened or written. The message names it (without its password) and what to do."""

    code = "store"


class LedgerUnavailableError(InterlockError):
    """The shared ledger cannot be reached. Nothing is granted meanwhile; the same message may be sent again."""

    code = "ledger_unavailable"


# Admission: refused before anything was sent.


class AdmissionError(InterlockError):
    """A demand was refused before anything was sent: nothing was taken and nothing is owed."""

    code = "admission"


class NeverFitsError(AdmissionError):
    """The demand is larger than the published capacity of an account, so no wait can help."""

    code = "never_fits"

    def __init__(self, message: str, *, account: str, ask: float, limit: float) -> None:
        super().__init__(message)
        self.account, self.ask, self.limit = account, ask, limit


class AdmissionTimeoutError(AdmissionError):
    """Its turn did not come within `max_wait_s` (seconds)."""

    code = "admission_timeout"

    def __init__(
        self, message: str, *, account: str | None = None, waited_s: float = 0.0, max_wait_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.account, self.waited_s, self.max_wait_s = account, waited_s, max_wait_s


class SpendCapExceededError(AdmissionError):
    """Spent plus this call's worst price would pass the cap. All four amounts are in `currency`, as decimal text.
    `name` is the cap's: "deployment" is that of a whole Runtime."""

    code = "spend_cap_exceeded"
    name = ""  # of one that a journal kept before caps were named

    def __init__(
        self, message: str, *, cap: str, spent: str, held: str, ask: str, currency: str, name: str = ""
    ) -> None:
        super().__init__(message)
        self.cap, self.spent, self.held, self.ask, self.currency = cap, spent, held, ask, currency
        self.name = name


# Upstream: what a provider did, or why it could not be called.


class UpstreamError(InterlockError):
    """A call that a provider did not serve as asked. Whatever is not known is None.

    `retryable` says whether the runtime runs the job again. `jitter_s` is the (first, longest) delay in seconds before
    such a re-run; None where the pool's own hold is the delay.
    """

    code = "upstream"
    retryable: ClassVar[bool] = False
    jitter_s: ClassVar[tuple[float, float] | None] = (0.5, 8.0)

    def __init__(
        self,
        message: str,
        *,
        model: str | None = None,
        provider: str | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
        request_id: str | None = None,
        attempts: int | None = None,
        usage: Any = None,
        sent: bool = True,
        provider_code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.model, self.provider, self.status = model, provider, status
        self.retry_after_s, self.request_id, self.attempts = retry_after_s, request_id, attempts
        self.usage = usage
        #: Whether the provider may have seen the request. False: nothing left this machine.
        self.sent = sent
        self.provider_code = provider_code
        #: What the answer's headers say of the account's limits, until the attempt has noted it.
        self.reported: Any = None


class RateLimitedError(UpstreamError):
    """429: the pool is held for everyone; the job keeps its place and comes back."""

    code = "llm_rate_limited"
    retryable = True
    jitter_s = None


class OverloadedError(UpstreamError):
    """529: only this job backs off, in a wide window; the throttle slows everyone down."""

    code = "llm_overloaded"
    retryable = True
    jitter_s = (0.5, 30.0)


class TransientUpstreamError(UpstreamError):
    """5xx, a lost connection, an attempt timed out. A provider's own transient error subclasses this."""

    code = "llm_transient"
    retryable = True


class MalformedResponseError(TransientUpstreamError):
    """The answer is not of the provider's wire (HTML under a 200, a broken body, vectors that do not align)."""

    code = "malformed_response"


class EmptyResponseError(MalformedResponseError):
    """The model ended its turn without a word, a call or a refusal."""

    code = "empty_response"


class QuotaExhaustedError(UpstreamError):
    """The account is out of money or over a hard limit: no wait within this run helps.

    `per_day`: the limit is one per day, so tomorrow there is some again; its pool is closed until then.
    """

    code = "quota_exhausted"

    def __init__(self, message: str, *, per_day: bool = False, **known: Any) -> None:
        super().__init__(message, **known)
        self.per_day = per_day


class ProviderRefusalError(UpstreamError):
    """The provider declined to answer. Never asked again of that model; its usage is counted."""

    code = "provider_refusal"

    def __init__(
        self, message: str, *, category: str | None = None, explanation: str | None = None, **known: Any
    ) -> None:
        super().__init__(message, **known)
        self.category, self.explanation = category, explanation


class OutputTruncatedError(UpstreamError):
    """The answer was cut off at `limit` output tokens. `partial` holds what came."""

    code = "output_truncated"

    def __init__(self, message: str, *, limit: int | None = None, partial: str = "", **known: Any) -> None:
        super().__init__(message, **known)
        self.limit, self.partial = limit, partial


class ContextWindowExceededError(UpstreamError):
    """Input (and reserved output) do not fit the model's window."""

    code = "context_window_exceeded"


class ResponseShapeError(UpstreamError):
    """The answer never took the wanted shape. `problems` has one line a correction, `answer` the last text.

    `correction` is the conversation to ask with again: the caller's own, the wrong turn, and what was wrong with it.
    """

    code = "response_shape"

    def __init__(
        self, message: str, *, problems: tuple[str, ...] = (), answer: str = "", correction: Any = None, **known: Any
    ) -> None:
        super().__init__(message, **known)
        self.problems, self.answer, self.correction = problems, answer, correction


class StreamInterruptedError(UpstreamError):
    """A stream broke after its first piece was delivered. `partial` holds the text that came."""

    code = "stream_interrupted"

    def __init__(self, message: str, *, partial: str = "", **known: Any) -> None:
        super().__init__(message, **known)
        self.partial = partial


class StreamBufferError(UpstreamError):
    """A SAFE stream grew past its buffer."""

    code = "stream_buffer"


class CredentialError(UpstreamError):
    """A credential is missing, malformed or refused. Names the credential id and where it was looked for. `remedy` is
    what would help, in two words, where that is known."""

    code = "credential"

    def __init__(self, message: str, *, credential: str | None = None, remedy: str = "", **known: Any) -> None:
        super().__init__(message, **known)
        self.credential, self.remedy = credential, remedy


class InvalidRequestError(UpstreamError):
    """The request cannot be served as written: refused by us before sending (`sent=False`) or by the provider."""

    code = "invalid_request"


class UnpricedModelError(UpstreamError):
    """A cost cap is set and the entry has no price, so the cap could not be kept. Nothing was sent."""

    code = "unpriced_model"


# Jobs and runs.


class TransactionOpenError(InterlockError):
    """A model was called after the job's transaction had begun, without `hold_transaction=True`."""

    code = "transaction_open"


class AmbiguousStepError(InterlockError):
    """A step has an intent and no outcome, and the run said `ambiguous="fail"`."""

    code = "ambiguous_step"


class LeaseLostError(InterlockError):
    """This process lost its lease: another may have taken its work over."""

    code = "lease_lost"


class JobCancelledError(InterlockError):
    """The job was cancelled before it had a result."""

    code = "job_cancelled"


class JobTimeoutError(InterlockError):
    """The job ran longer than its `timeout_s`, counted from its grant. Not retried."""

    code = "job_timeout"

    def __init__(self, message: str, *, timeout_s: float | None = None) -> None:
        super().__init__(message)
        self.timeout_s = timeout_s


class JobDeadlockError(InterlockError):
    """A job that holds resources waits for another job, which might wait for those very resources."""

    code = "job_deadlock"


class DependencyFailedError(InterlockError):
    """A job named in `after=` failed, so this one was not run."""

    code = "dependency_failed"


class UndeclaredResourceError(InterlockError):
    """A job asked for a model, database or account it never declared in `requirements`."""

    code = "undeclared_resource"


class ReplayMismatchError(InterlockError):
    """A replayed step is not the one that was recorded. Both sides are named."""

    code = "replay_mismatch"


class RunHeldError(ConfigurationError):
    """The run of that id is under way, here or in another process that is alive."""

    code = "run_held"


class UnencodableError(InterlockError):
    """A value cannot be written down as JSON, or not be read back. Names where it stands, its type, and what to do."""

    code = "unencodable"


class ReplayedError(InterlockError):
    """Stands for a recorded error whose class is not there any more: `kind` is its name, the message what it said."""

    code = "replayed_error"

    def __init__(self, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class SimulationError(InterlockError):
    """The simulated provider was misused: the script or its limits are wrong."""

    code = "simulation"
