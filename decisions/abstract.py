"""AbstractDecisionClient: the template. A provider subclass sends one request; the rest is here and in `bound`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.entry import ModelEntry, ProviderSettings
from interlock.catalog.spec import ModelBinding
from interlock.catalog.tokens import estimate_text
from interlock.catalog.usage import Usage
from interlock.clients.environment import ClientEnvironment
from interlock.clients.record import CallSeat
from interlock.errors import ContextWindowExceededError

from .request import DecisionRequest
from .response import Answer
from .splitting import DecisionPart, split
from .wire import decode_answers

if TYPE_CHECKING:
    from .bound import BoundDecisionClient
    from .kept import KeptParts

#: Requests of one decision under way at a time, where its pool has no `max_concurrent`.
PARTS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionAnswer:
    """What a provider answered: `body` as `decode` of its client reads it, unless that says otherwise in the form of
    the System One wire, `{"answers": {...}}`.

    `read_characters` is set where the model read only so much of the state. `usage` None is unknown.
    """

    body: object
    usage: Usage | None = None
    request_id: str | None = None
    served_model: str | None = None
    reported: Mapping[Dimension, ReportedLimit] | None = None
    read_characters: int | None = None


class AbstractDecisionClient(ABC):
    """One entry of the catalog, callable. A subclass owns `send`: one wire request, its errors and its usage."""

    UPSTREAM_RETRIES: ClassVar[int] = 3
    #: Whether the model cuts a long state (and the answer says so) instead of refusing it.
    CUTS_STATE: ClassVar[bool] = False
    #: Questions a request, where the entry's `max_batch_items` does not say it. None: any number.
    MOST_QUESTIONS: ClassVar[int | None] = None
    #: Whether the transport tells when the first byte leaves. Otherwise a request counts as sent when `send` is called.
    tells_first_byte: ClassVar[bool] = False

    def __init__(self, entry: ModelEntry, environment: ClientEnvironment) -> None:
        self.entry, self.environment = entry, environment
        #: As many calls at once as there are connections; the rest wait here, before their permit is drawn.
        self.connections: AbstractAsyncContextManager[Any] = nullcontext()

    @abstractmethod
    async def send(self, request: DecisionRequest) -> DecisionAnswer:
        """Send one request, once, without any retry. Raises UpstreamError subclasses that never quote the state."""

    async def aclose(self) -> None:
        """Close what was opened. The client is not used afterwards."""
        return

    @classmethod
    def plan(
        cls, entry: ModelEntry, settings: ProviderSettings, request: DecisionRequest, count: Callable[[str], int]
    ) -> tuple[DecisionPart, ...]:
        """The requests that `request` takes: what is reserved is what is sent. `count` gives the tokens of a text."""
        window = None if cls.CUTS_STATE else entry.context_window
        most = entry.max_batch_items or cls.MOST_QUESTIONS
        return split(request, most_questions=most, most_tokens=window, count=count)

    def decode(self, body: Any, request: DecisionRequest) -> dict[str, Answer]:
        """The answers to the questions of one request. Raises MalformedResponseError naming what is missing or
        impossible."""
        return decode_answers(body, request.questions)

    @classmethod
    def output_tokens(cls, entry: ModelEntry, settings: ProviderSettings) -> int:
        """The output limit of a call of which only the input's size is known. A decision model writes nothing."""
        return 0

    def merge(
        self, request: DecisionRequest, answered: Sequence[tuple[DecisionPart, Mapping[str, Answer]]]
    ) -> dict[str, Answer]:
        """One answer a question, in the order asked, from those of the parts."""
        given = {name: answer for _, answers in answered for name, answer in answers.items()}
        return {name: given[name] for name in request.questions}

    def bound(self, binding: ModelBinding, seat: CallSeat, kept: KeptParts | None = None) -> BoundDecisionClient:
        """`kept`: what the job's earlier attempts were answered."""
        from .bound import BoundDecisionClient

        return BoundDecisionClient(self, binding, seat, kept)

    async def check(self, request: DecisionRequest) -> None:
        """Refuse what this model cannot take, before anything is sent."""
        return

    def require_room(self, part: DecisionPart) -> None:
        """Raises ContextWindowExceededError (nothing sent) for a part that the model does not read whole."""
        window, entry = self.entry.context_window, self.entry
        if window is None or self.CUTS_STATE or part.input_tokens + part.output_tokens <= window:
            return
        asked = len(part.request.questions)
        questions = "its question" if asked == 1 else f"its {asked} questions"
        raise ContextWindowExceededError(
            f"the state and {questions} have about {part.input_tokens:,} tokens; {entry.id} reads {window:,}",
            model=entry.id,
            sent=False,
        )

    def failure(self, error: Exception) -> Exception:
        """What `send` raised, as it is told: a provider's errors are typed by `send` itself."""
        return error

    def limits_in(self, error: Exception) -> Mapping[Dimension, ReportedLimit]:
        """What an error's response says of the account's limits."""
        return getattr(error, "reported", None) or {}

    @property
    def at_once(self) -> int:
        """Requests of one decision under way at a time. A pool that counts calls was asked for one."""
        limits = self.environment.limits
        return PARTS_AT_ONCE if limits is None or limits.max_concurrent is None else 1

    @property
    def timeout_s(self) -> float:
        return self.entry.timeout_s or self.environment.settings.timeout_s

    def planned(self, request: DecisionRequest) -> tuple[DecisionPart, ...]:
        """`plan` with this client's entry, settings and estimate."""
        return self.plan(self.entry, self.environment.settings, request, self.count)

    def count(self, text: str) -> int:
        """Tokens of a text, as the reservation counts them."""
        estimator = self.environment.estimator
        return estimate_text(text) if estimator is None else estimator.estimate(self.entry.id, text)
