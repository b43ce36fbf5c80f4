"""LLMCall: one call of a chat model as a job. Most pipelines need no other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypedDict, TypeVar, overload

from typing_extensions import Unpack

from interlock.catalog.spec import ModelSpec
from interlock.catalog.words import Depth, Grade, OutputSize
from interlock.clients.conversation import Conversation
from interlock.clients.options import CallOptions, StreamingMode, Tool
from interlock.clients.response import LLMResponse
from interlock.clients.turns import inputs_of
from interlock.errors import ResponseShapeError

from .job import Job
from .journal.names import holds_data, name_of

if TYPE_CHECKING:
    from .requirements import JobRequirements
    from .resources import JobResources
    from .streaming import Sink

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class CallSettings(TypedDict, total=False):
    """What a call takes beside its model and its content. Unset leaves the entry's value or the default.

    The answer's limit is `max_output_tokens` or `output` by name, 8,192 without either. `avoid` names entries not to be
    picked. Of the rest `upstream_retries` to `overflow` are those of every Job, the others go to the wire.
    """

    system: str | None
    max_output_tokens: int | None
    output: OutputSize | None
    depth: Depth
    avoid: Collection[str]
    max_corrections: int | None
    tools: Iterable[Tool]
    tool_choice: str | None
    parallel_tool_calls: bool | None
    temperature: float | None
    top_p: float | None
    seed: int | None
    stop: Iterable[str]
    cache: bool
    cache_ttl: Literal["5m", "1h"] | None
    provider_options: Mapping[str, Any]
    upstream_retries: int
    timeout_s: float | None
    priority: int
    workflow: str
    max_wait_s: float | None
    overflow: Literal["fail", "proceed"]


class LLMCallSettings(CallSettings, total=False):
    """The same with the `model`: a grade (a floor), an entry's id, or a ModelSpec; SMALL unless said."""

    model: ModelSpec | Grade | str


_OF_OPTIONS = frozenset(
    ("tool_choice", "parallel_tool_calls", "temperature", "top_p", "seed", "cache", "cache_ttl", "provider_options")
)
_OF_JOB = frozenset(("upstream_retries", "timeout_s", "priority", "workflow", "max_wait_s", "overflow"))


@dataclass(frozen=True, init=False, eq=True)
class LLMCall(Job[R_co], Generic[R_co]):
    """Ask a chat model once. With `response_model` the result is an instance of it, without one an LLMResponse.

        LLMCall("Say hello.", model=Grade.SMALL, max_output_tokens=200)
        LLMCall(ticket.text, system="Summarise.", response_model=Triage)

    A wrong shape is told to the model, which is asked again up to `max_corrections` times; an answer cut off is asked
    for once more with the model's whole ceiling reserved. Neither counts as an upstream retry. Raises UpstreamError
    subclasses: ResponseShapeError, OutputTruncatedError, ProviderRefusalError, and so on.
    """

    MAX_CORRECTIONS: ClassVar[int] = 2

    conversation: Conversation
    spec: ModelSpec
    options: CallOptions
    response_model: type[Any] | None
    max_corrections: int
    job_settings: tuple[tuple[str, Any], ...] = ()
    corrections: int = 0  # made so far
    problems: tuple[str, ...] = field(default=(), repr=False)

    @overload
    def __init__(
        self: LLMCall[LLMResponse],
        content: Conversation | str,
        *,
        response_model: None = None,
        **settings: Unpack[LLMCallSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: LLMCall[T],
        content: Conversation | str,
        *,
        response_model: type[T],
        **settings: Unpack[LLMCallSettings],
    ) -> None: ...
    def __init__(
        self,
        content: Conversation | str,
        *,
        response_model: type[Any] | None = None,
        **settings: Unpack[LLMCallSettings],
    ) -> None:
        given: dict[str, Any] = dict(settings)
        unknown = given.keys() - LLMCallSettings.__annotations__.keys()
        if unknown:
            raise TypeError(f"LLMCall has no argument {sorted(unknown)[0]!r}")
        corrections = given.get("max_corrections")
        job_settings = {name: value for name, value in given.items() if name in _OF_JOB}
        values = {
            "conversation": Conversation.of(content, system=given.get("system")),
            "spec": _spec(given, Conversation.of(content)),
            "options": _options(given),
            "response_model": response_model,
            "max_corrections": self.MAX_CORRECTIONS if corrections is None else corrections,
            "job_settings": tuple(job_settings.items()),
            "corrections": 0,
            "problems": (),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        for name, value in job_settings.items():
            object.__setattr__(self, name, value)

    def requirements(self, needs: JobRequirements) -> None:
        needs.bind_chat(self.spec, self.conversation, options=self.options, response_model=self.response_model)

    async def run(self, resources: JobResources) -> R_co:
        response = await self.respond(resources)
        return response if self.response_model is None else response.parsed  # type: ignore[return-value]

    async def respond(self, resources: JobResources) -> LLMResponse:
        """The whole response, its usage and cost those of every request it took."""
        client = resources.get_llm_client(self.spec)
        response = await client.single_response(
            self.conversation, options=self.options, response_model=self.response_model
        )
        return resources.with_totals(response)

    async def stream_to(self, sink: Sink, resources: JobResources, mode: StreamingMode) -> LLMResponse:
        """The same in pieces, each handed to `sink` as it comes."""
        client = resources.get_llm_client(self.spec)
        async with client.stream_response(
            self.conversation, options=self.options, response_model=self.response_model, mode=mode
        ) as pieces:
            async for piece in pieces:
                if piece.response is None:
                    sink.put(piece)
        return resources.with_totals(pieces.response)

    def asked_again(self, error: BaseException) -> LLMCall[R_co] | None:
        """After a wrong shape: the same call with what was wrong told to the model."""
        if not isinstance(error, ResponseShapeError):
            return None
        problems = (*self.problems, *error.problems)
        correction: Conversation | None = getattr(error, "correction", None)
        if correction is None or self.corrections >= self.max_corrections:
            error.problems = problems
            return None
        return self._with(conversation=correction, corrections=self.corrections + 1, problems=problems)

    def _identity(self) -> Any:
        spec = replace(self.spec, max_output_tokens=None, output=None)
        return self.conversation, spec, self.options, self.response_model

    def _check_nameable(self) -> None:
        if isinstance(self.response_model, type) and holds_data(self.response_model):
            name_of(self.response_model)

    def _answer_limit(self) -> str:
        return str(self.spec.max_output_tokens or self.spec.output or "")

    def with_options(self, options: CallOptions) -> LLMCall[R_co]:
        """The same call with other options for the wire."""
        return self._with(options=options)

    def _with(self, **changes: Any) -> LLMCall[R_co]:
        other: LLMCall[R_co] = object.__new__(type(self))
        for name, value in {**self.__dict__, **changes}.items():
            object.__setattr__(other, name, value)
        return other


@dataclass(frozen=True)
class WholeResponse(Job[LLMResponse]):
    """An LLMCall whose result is the whole LLMResponse, also where a response_model is asked for."""

    call: LLMCall[Any]

    def requirements(self, needs: JobRequirements) -> None:
        self.call.requirements(needs)

    async def run(self, resources: JobResources) -> LLMResponse:
        return await self.call.respond(resources)

    def asked_again(self, error: BaseException) -> WholeResponse | None:
        again = self.call.asked_again(error)
        return None if again is None else replace(self, call=again)

    def _identity(self) -> Any:
        return type(self).__name__, self.call._identity()

    def _check_nameable(self) -> None:
        self.call._check_nameable()

    def _answer_limit(self) -> str:
        return self.call._answer_limit()

    def __post_init__(self) -> None:
        for name in _OF_JOB:
            object.__setattr__(self, name, getattr(self.call, name))

    @property
    def job_name(self) -> str:
        return type(self.call).__name__


@dataclass(frozen=True, eq=False)
class StreamedCall(WholeResponse):
    """An LLMCall whose pieces go to a sink as they come. Once one was delivered nothing is asked again."""

    sink: Sink
    mode: StreamingMode = StreamingMode.LIVE

    async def run(self, resources: JobResources) -> LLMResponse:
        return await self.call.stream_to(self.sink, resources, self.mode)

    def can_run_again(self) -> bool:
        return not self.sink.delivered

    def _handed_out(self) -> Sequence[Any]:
        return self.sink.kept or ()


def _spec(given: Mapping[str, Any], content: Conversation) -> ModelSpec:
    asked = given.get("model", Grade.SMALL)
    spec = ModelSpec.of(asked)
    if given.get("max_output_tokens") is not None or given.get("output") is not None:
        spec = replace(spec, max_output_tokens=given.get("max_output_tokens"), output=given.get("output"))
    if "depth" in given:
        spec = replace(spec, depth=given["depth"])
    if given.get("avoid"):
        spec = replace(spec, avoid=spec.avoid | frozenset(given["avoid"]))
    return replace(spec, sends=spec.sends | inputs_of(content))


def _options(given: Mapping[str, Any]) -> CallOptions:
    plain = {name: value for name, value in given.items() if name in _OF_OPTIONS}
    stop = given.get("stop", ())
    words = (stop,) if isinstance(stop, str) else tuple(stop)
    return CallOptions(tools=tuple(given.get("tools", ())), stop=words, **plain)
