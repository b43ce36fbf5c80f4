"""AbstractLLMClient: the template that every chat provider fills in, ours and yours.

The template owns the way of a call: check, encode, send once, classify, settle, record, gate. A provider owns four
things and nothing else:

1. **How a conversation is written**: `encoders` maps each block class to its encoder, so no block is ever dropped
   silently, and `encode` puts the request's body together.
2. **How an answer is read**: `read_reply` (whole) and `read_event` (one event of a stream) put facts into a `Draft`.
   Both are pure.
3. **How its errors are read**: `read_error`.
4. **How it is sent**: `send` and `open`, one wire request each, and whatever authentication that takes. No retries.

A provider of your own:

    class MyClient(AbstractLLMClient):
        encoders = {TextBlock: lambda block: {"type": "text", "text": block.text}}
        takes = frozenset({"temperature", "stop"})

        def encode(self, ask: Ask) -> dict[str, Any]: ...
        async def send(self, body: bytes) -> Reply: ...
        async def open(self, body: bytes, alive: Callable[[], None]) -> WireStream: ...
        def read_reply(self, payload: Any, draft: Draft) -> None: ...
        def read_event(self, event: Any, draft: Draft) -> Sequence[Piece]: ...
        def read_error(self, error: Exception) -> UpstreamError | None: ...

and one line of packaging (see `registry`). `tests/clients/test_contract_*.py` is the suite that it should pass.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.entry import ModelEntry
from interlock.catalog.spec import ModelBinding
from interlock.errors import (
    InterlockError,
    MalformedResponseError,
    TransientUpstreamError,
    UpstreamError,
)

from .answer import Answer, Draft
from .asking import Ask, choose_structure, joined_tools, merged_options, refuse_reserved
from .bound import BoundLLMClient
from .conversation import Conversation
from .environment import ClientEnvironment
from .listing import ListedModel, NoModelListError
from .measure import raw_input_tokens
from .options import CallOptions
from .record import CallSeat
from .response import Piece
from .schema import Dialect
from .shapes import check_conversation
from .structured import Shape
from .turns import (
    check_inputs,
    half_character,
    ready_turns,
    refused,
    with_fitting_ids,
    without_foreign_signatures,
)
from .watch import AttemptTimeout
from .writing import plain

#: A call may be this much larger than declared before it counts as undeclared: an estimate is no measurement.
DECLARED_SLACK, DECLARED_SLACK_TOKENS = 1.1, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer as it came: its parsed body and what the headers say."""

    payload: Any
    request_id: str | None = None
    reported: Mapping[Dimension, ReportedLimit] = field(default_factory=dict)


class Events(Protocol):
    """The events of an open stream, each as the wire's own parsed value."""

    def __anext__(self) -> Awaitable[Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WireStream:
    """An open stream: its events, what the headers say, and how the connection is given back."""

    events: Events
    aclose: Callable[[], Awaitable[None]]
    request_id: str | None = None
    reported: Mapping[Dimension, ReportedLimit] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that passed every check, ready to be sent: its body, size and what its answer is held against."""

    conversation: Conversation  # the caller's own, unchanged
    shape: Shape | None
    answer_tool: str | None
    body: bytes
    request_hash: str
    input_tokens: int
    measured_tokens: int
    output_tokens: int
    server_tools: bool = False  # tools that the provider runs itself are offered


class AbstractLLMClient(ABC):
    """One model on one provider. Built by the runtime at the model's first call; `aclose` gives its connections back.

    `entry` and `environment` are all it is built with. Not built by users: `bound` gives the client that a job holds.
    """

    #: Block class -> how it is written on this wire. An encoder that gives None leaves the block out on purpose.
    encoders: ClassVar[Mapping[type, Callable[[Any], Any]]]
    #: Which options this wire has words for: temperature, top_p, seed, stop, tools, tool_choice, parallel_tool_calls.
    takes: ClassVar[frozenset[str]] = frozenset()
    #: What `provider_options` may not set, because the reservation or the template depends on it.
    reserved: ClassVar[frozenset[str]] = frozenset({"model", "messages", "stream", "max_tokens"})
    #: The provider's strict mode for structured answers, where it has one.
    dialect: ClassVar[Dialect | None] = None
    #: Whose signatures its answers carry, where they carry any. Providers that take each other's share a name.
    signs_as: ClassVar[str | None] = None
    #: Which ids of tool calls it takes; None: any. Another provider's that does not fit is written as one that does.
    call_ids: ClassVar[re.Pattern[str] | None] = None
    #: Whether its transport tells when the first byte leaves (see `first_byte`). Otherwise a call counts as sent when
    #: `send` or `open` is called.
    tells_first_byte: ClassVar[bool] = False
    #: How many re-runs a job gets by default after a transient failure.
    upstream_retries: ClassVar[int] = 3

    def __init__(self, entry: ModelEntry, environment: ClientEnvironment) -> None:
        self.entry = entry
        self.environment = environment
        #: As many calls at once as there are connections. The rest wait here, before their permit is drawn: an SDK
        #: would make them wait after it, with their time running and nobody seeing why.
        self.connections = asyncio.Semaphore(environment.settings.max_connections)

    # What a provider fills in.

    @abstractmethod
    def encode(self, ask: Ask) -> dict[str, Any]:
        """The request's body. Raises `InvalidRequestError(sent=False)` for what this wire cannot say."""

    @abstractmethod
    async def send(self, body: bytes) -> Reply:
        """One wire request for a whole answer. Raises whatever its SDK raises: `read_error` reads it."""

    @abstractmethod
    async def open(self, body: bytes, alive: Callable[[], None]) -> WireStream:
        """One wire request for a streamed answer, up to its headers. Call `alive` whenever bytes come, so that a
        provider's pings count as signs of life."""

    @abstractmethod
    def read_reply(self, payload: Any, draft: Draft) -> None:
        """Put a whole answer into the draft. Whatever it stumbles over makes the answer malformed."""

    @abstractmethod
    def read_event(self, event: Any, draft: Draft) -> Sequence[Piece]:
        """Put one event into the draft and give the pieces it delivers. Sets `draft.complete` at the wire's own end."""

    @abstractmethod
    def read_error(self, error: Exception) -> UpstreamError | None:
        """What an exception of `send`, `open` or the events means. None: it is no provider's error but a bug."""

    def limits_in(self, error: Exception) -> Mapping[Dimension, ReportedLimit]:
        """What the headers of an error's response say of the account's limits: a refusal carries them too."""
        return {}

    def with_options(self, wire: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """The body with `provider_options` over it: each stands instead of what was there, whole. Only `tools` join the
        call's own afterwards (`with_tools`)."""
        return {**wire, **options}

    def with_tools(self, wire: dict[str, Any], own: Sequence[Any], given: Any) -> dict[str, Any]:
        """The body with the call's own tools, as they were encoded, beside those that `provider_options` gives."""
        return {**wire, "tools": joined_tools(own, given, model=self.entry.id)}

    def ready(self) -> None:  # noqa: B027 - not abstract: a client without connections needs none
        """Make ready to send: read the credential, build the SDK's client. Called before every call's permit is drawn,
        so that what is missing costs nothing."""

    async def list_models(self) -> Sequence[ListedModel]:
        """What this provider's own list says the credential can call, asked for with this client's key. Raises
        `NoModelListError` where there is no list, else whatever its SDK raises: `failure` makes it an error of ours."""
        raise NoModelListError(f"provider {self.entry.provider} has no list of models to ask for")

    async def count_tokens(self, body: bytes) -> int | None:
        """How many input tokens that request has, as its provider counts them without answering it. One request, which
        costs nothing and is on no record. None: it has no endpoint for that. Raises whatever its SDK raises."""
        return None

    async def aclose(self) -> None:  # noqa: B027 - not abstract: a client without connections needs none
        """Give back the connections. The default has none."""

    # What the template does with it.

    def bound(self, binding: ModelBinding, seat: CallSeat) -> BoundLLMClient:
        """The client of one job: this model, on that job's reservation."""
        return BoundLLMClient(self, binding, seat)

    @property
    def timeout_s(self) -> float:
        """Seconds one attempt may take, from send to last byte."""
        return float(self.entry.timeout_s or self.environment.settings.timeout_s)

    def prepare(
        self,
        binding: ModelBinding,
        conversation: Conversation | str,
        options: CallOptions | None,
        response_model: Any,
        *,
        stream: bool,
    ) -> Call:
        """Check and encode. Whatever is wrong with a request is said here, before anything is sent."""
        entry = self.entry
        asked = Conversation.of(conversation)
        check_conversation(asked, model=entry.id)
        turns = with_fitting_ids(ready_turns(without_foreign_signatures(asked, self.signs_as)), self.call_ids)
        check_inputs(turns, model=entry.id, inputs=entry.inputs)
        self._check_blocks(turns)
        chosen = merged_options(entry, options, self.takes)
        refuse_reserved((entry.provider_options, chosen.provider_options), self.reserved)
        told = {**entry.provider_options, **chosen.provider_options}
        given = told.get("tools")
        structure = choose_structure(
            entry, response_model, self.dialect, has_tools="tools" in self.takes, server_tools=bool(given)
        )
        ask = Ask(
            entry=entry, conversation=turns, options=chosen, structure=structure, stream=stream,
            max_output_tokens=binding.output_tokens, thinking_tokens=binding.thinking_tokens, depth=binding.spec.depth,
        )  # fmt: skip
        written = self.encode(ask)
        wire = self.with_options(self.with_options(written, entry.provider_options), chosen.provider_options)
        if "tools" in told:
            wire = self.with_tools(wire, written.get("tools", ()), given)
        body = self._as_json(wire, asked)
        measured, declared = self._measured(binding, asked, chosen, response_model)
        return Call(
            conversation=asked,
            shape=structure.shape if structure else None,
            answer_tool=structure.tool_name if structure else None,
            body=body,
            request_hash=_hash(body, streamed=stream and "stream" not in wire),
            input_tokens=declared,
            measured_tokens=measured,
            output_tokens=binding.output_tokens,
            server_tools=bool(given),
        )

    async def count_input(self, call: Call) -> int | None:
        """`count_tokens` of a prepared call, on one of this client's connections. Raises what `failure` makes of it."""
        try:
            self.ready()
            async with self.connections:
                return await self.count_tokens(call.body)
        except Exception as error:
            failure = self.failure(error)
        raise failure

    def draft(self) -> Draft:
        """An answer of this provider, about to be read."""
        return Draft(self.signs_as)

    def read(self, reply: Reply) -> Answer:
        """The answer that a reply holds. Raises `MalformedResponseError`."""
        draft = self.draft()
        draft.request_id, draft.reported = reply.request_id, reply.reported
        try:
            self.read_reply(reply.payload, draft)
            draft.complete = True
            return draft.answer()
        except InterlockError:
            raise
        except Exception as error:
            problem = type(error).__name__
        raise self.malformed(f"answered a body that is not of its wire ({problem})", request_id=reply.request_id)

    def read_one(self, event: Any, draft: Draft) -> Sequence[Piece]:
        """`read_event`, with whatever it stumbles over made a malformed answer."""
        try:
            return self.read_event(event, draft)
        except InterlockError:
            raise
        except Exception as error:
            problem = type(error).__name__
        raise self.malformed(f"sent an event that is not of its wire ({problem})", request_id=draft.request_id)

    @property
    def where(self) -> str:
        """The provider for an error's reader: its key, and the host where there is one."""
        return self.entry.provider

    def malformed(self, what: str, **known: Any) -> MalformedResponseError:
        """A malformed answer, named: `what` continues "PROVIDER ..."."""
        return MalformedResponseError(f"{self.where} {what}, for {self.entry.id}", model=self.entry.id,
                                      provider=self.entry.provider, **known)  # fmt: skip

    def failure(self, error: Exception) -> Exception:
        """The error that the caller gets: typed, complete, without secrets and without a chain into an SDK. What is no
        provider's doing comes back as it is."""
        found: Exception | None
        if isinstance(error, AttemptTimeout):
            code = "idle_timeout" if error.idle else "attempt_timeout"
            found = TransientUpstreamError(f"{self.entry.provider}: {error}, for {self.entry.id}", provider_code=code)
        elif isinstance(error, InterlockError):
            found = error
        else:
            found = self._error_read(error)
        if not isinstance(found, UpstreamError):
            return error
        found.model = found.model or self.entry.id
        found.provider = found.provider or self.entry.provider
        found.__cause__ = found.__context__ = None
        return self.environment.redactor.scrub(found)

    # The rest is the template's own.

    def _error_read(self, error: Exception) -> UpstreamError | None:
        """`read_error`. Where it stumbles the call has failed all the same, and must be settled."""
        try:
            return self.read_error(error)
        except Exception as stumbled:
            problem = type(stumbled).__name__
        return self.malformed(f"failed with a {type(error).__name__} that cannot be read ({problem})")

    def _check_blocks(self, turns: Conversation) -> None:
        for number, message in enumerate(turns.messages, start=1):
            for block in message.blocks:
                if type(block) not in self.encoders:
                    written = ", ".join(sorted(known.__name__ for known in self.encoders))
                    raise refused(f"{self.entry.provider} cannot write a {type(block).__name__} (turn {number}); "
                                  f"it writes {written}", model=self.entry.id)  # fmt: skip

    def _as_json(self, wire: Mapping[str, Any], asked: Conversation) -> bytes:
        try:
            return json.dumps(wire, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain).encode()
        except UnicodeEncodeError:
            place = half_character(asked) or "the options"
            problem = f"half a character (a lone surrogate) stands in {place}"
        except (TypeError, ValueError, RecursionError) as error:
            problem = f"the request cannot be written as JSON: {str(error)[:200]}"
        raise refused(problem, model=self.entry.id)

    def _measured(
        self, binding: ModelBinding, asked: Conversation, options: CallOptions, response_model: Any
    ) -> tuple[int, int]:
        """(its estimated size, the size to reserve): the declared one unless it is clearly larger than that."""
        estimator = self.environment.estimator
        if estimator is None:
            return binding.input_tokens, binding.input_tokens
        raw = raw_input_tokens(asked, options=options, response_model=response_model)
        measured = estimator.corrected(self.entry.id, raw)
        # The model's correction may have moved since the declaration: the same text is the declared size.
        same = binding.raw_input_tokens is not None and raw <= binding.raw_input_tokens
        within = same or measured <= binding.input_tokens * DECLARED_SLACK + DECLARED_SLACK_TOKENS
        return measured, binding.input_tokens if within else measured


def _hash(body: bytes, *, streamed: bool) -> str:
    """`streamed`: the body does not say so, because the wire asks for a stream by the path."""
    digest = hashlib.sha256(body)
    if streamed:
        digest.update(b"\nstreamed")
    return digest.hexdigest()
