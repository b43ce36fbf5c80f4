"""JobRequirements: what a job says it needs, bound and sized as it says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from interlock.catalog.spec import ModelBinding, ModelSpec
from interlock.catalog.tokens import estimate_text
from interlock.catalog.words import Depth, Grade, Input, Kind, OutputSize
from interlock.clients.conversation import Conversation
from interlock.clients.measure import raw_input_tokens
from interlock.clients.turns import inputs_of
from interlock.decisions.request import DecisionRequest
from interlock.errors import ConfigurationError, UndeclaredResourceError

from .counting import Question, counted
from .database import DatabaseNeed, DatabaseProvider
from .kinds import likeness
from .routing import NOBODY, Caller

if TYPE_CHECKING:
    from interlock.clients.options import CallOptions
    from interlock.embeddings.cutting import Split

    from .desk import ModelDesk

#: A model as it may be named: what is asked, a grade, an entry's id, or what the picker answered.
Asked = ModelSpec | Grade | str


class JobRequirements:
    """Called once per attempt. Everything declared here is granted together, and held while `run` runs.

    The model methods return the `ModelBinding`: the entry the picker chose, with the tokens that are both reserved and
    sent. They raise ModelResolutionError, ContextWindowExceededError, and so on: the job then fails before it waits.
    """

    def __init__(
        self,
        desk: ModelDesk,
        databases: Mapping[str, DatabaseProvider],
        accounts: Mapping[str, tuple[Any, int]],
        *,
        at_ceiling: frozenset[ModelSpec] = frozenset(),
        caller: Caller = NOBODY,
    ) -> None:
        self._desk, self._providers, self._known_accounts, self._at_ceiling = desk, databases, accounts, at_ceiling
        self._caller = caller
        self.bindings: list[ModelBinding] = []
        self.databases: list[DatabaseNeed] = []
        self.accounts: list[tuple[Any, int]] = []
        #: What providers are to be asked before the job enters the line.
        self.questions: list[Question] = []
        #: What the chat calls have in common with others of their kind.
        self.likeness: tuple[Any, ...] = ()

    def require_model(
        self,
        model: Asked,
        *,
        input: Conversation | str | int = 0,
        max_output_tokens: int | None = None,
        output: OutputSize | None = None,
        depth: Depth | None = None,
        sends: Collection[Input] | None = None,
        calls: int = 1,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
    ) -> ModelBinding:
        """A chat model, for `calls` requests of at most this size each.

        `input` is the text, the conversation, or a number of tokens. A conversation with images or documents goes to a
        model that reads them; where only a number is given, `sends` says it. The answer's limit is `max_output_tokens`,
        or `output` by name; one of the two is needed, here or in the spec. `options` (its tools) and `response_model`
        (its schema) are counted as input.
        """
        spec = _with_limits(ModelSpec.of(model), max_output_tokens, output, depth, sends)
        if spec.max_output_tokens is None and spec.output is None:
            raise ConfigurationError(
                f"require_model({spec}) says nothing about the size of the answer: give max_output_tokens, or output="
            )
        return self.bind_chat(spec, input, calls=calls, options=options, response_model=response_model)

    def bind_chat(
        self,
        spec: ModelSpec,
        input: Conversation | str | int,
        *,
        calls: int = 1,
        options: CallOptions | None = None,
        response_model: type[Any] | None = None,
    ) -> ModelBinding:
        """The same for a spec that may leave the limit to the default (an LLMCall does)."""
        exact = isinstance(input, int)
        spec = replace(spec, sends=spec.sends | sent) if (sent := inputs_of(input) - spec.sends) else spec
        self.likeness += likeness(input, options, response_model)
        tokens = input if isinstance(input, int) else raw_input_tokens(
            input, options=options, response_model=response_model
        )  # fmt: skip
        bound = self._desk.bind(
            spec, tokens, exact=exact, calls=_count(calls), at_ceiling=spec in self._at_ceiling, caller=self._caller
        )
        if bound.entry.count == "provider" and not isinstance(input, int):
            self.questions.append(Question(len(self.bindings), input, options, response_model))
        return self._add(bound)

    def counted(self, found: Mapping[int, int]) -> None:
        """What providers have counted, in place of the estimates."""
        for place, tokens in found.items():
            binding = self.bindings[place]
            at_ceiling = binding.spec in self._at_ceiling
            self.bindings[place] = counted(binding, tokens, self._desk.catalog, at_ceiling=at_ceiling)

    def require_embeddings(
        self,
        model: Asked | None = None,
        *,
        input: str | Sequence[str] | int = 0,
        calls: int | None = None,
        truncate: bool = False,
        split: Split | None = None,
    ) -> ModelBinding:
        """An embedding model. `input` is the text, the texts (then the calls are planned), or the tokens of a call.
        `truncate` and `split` as they will be embedded."""
        spec = _of_kind(model, Kind.EMBEDDINGS)
        if isinstance(input, int):
            return self._add(self._desk.bind(spec, input, exact=True, calls=_count(calls or 1), caller=self._caller))
        texts = [input] if isinstance(input, str) else input
        binding = self._desk.bind_texts(spec, texts, truncate=truncate, split=split, caller=self._caller)
        return self._add(binding if calls is None else replace(binding, calls=_count(calls)))

    def require_decision(
        self,
        model: Asked | None = None,
        *,
        input: DecisionRequest | Sequence[DecisionRequest] | str | int = 0,
        calls: int = 1,
    ) -> ModelBinding:
        """A decision model. `input` is the request, or all that will be decided in one batch (then the calls that a
        request takes are planned, `calls` times over), or the text or the tokens of a call."""
        spec, calls = _of_kind(model, Kind.DECISION), _count(calls)
        if isinstance(input, (int, str)):
            exact = isinstance(input, int)
            tokens = input if isinstance(input, int) else estimate_text(input)
            bound = self._desk.bind(spec, tokens, exact=exact, calls=calls, caller=self._caller)
            return self._add(self._desk.decision_output(bound))
        requests = [input] if isinstance(input, DecisionRequest) else list(input)
        return self._add(self._desk.bind_decisions(spec, requests, times=calls, caller=self._caller))

    def require_database(self, name: str, *, transaction: bool = True, hold_transaction: bool = False) -> None:
        """One connection of a registered database. Its transaction begins with the first statement and is committed
        before the job's result is delivered. `hold_transaction` allows a model call while it is open;
        `transaction=False` only counts."""
        provider = self._providers.get(name)
        if provider is None:
            known = ", ".join(sorted(self._providers)) or "none"
            raise ConfigurationError(
                f"no database {name!r} is registered (known: {known}): add DatabaseProvider({name!r}, engine) to"
                " RuntimeSettings.databases (on the command line by --configure)"
            )
        if any(need.provider is provider for need in self.databases):
            raise ConfigurationError(
                f"database {name!r} was required twice by one job: a job has one transaction on it"
            )
        self.databases.append(DatabaseNeed(provider, transaction, hold_transaction))

    def require(self, account: str, amount: int = 1) -> None:
        """Units of one of `RuntimeSettings.accounts`, by its name."""
        found = self._known_accounts.get(account)
        if found is None:
            known = ", ".join(sorted(self._known_accounts)) or "none"
            raise ConfigurationError(f"no account {account!r} is registered (known: {known})")
        self.accounts.append(found if amount == 1 else (found[0], _count(amount)))

    def _add(self, binding: ModelBinding) -> ModelBinding:
        self.bindings.append(binding)
        return binding

    # The mission's own spellings.
    requireModel = require_model
    requireEmbeddings = require_embeddings
    requireDecision = require_decision
    requireDatabase = require_database


def declared(
    bindings: Sequence[ModelBinding], asked: Asked | ModelBinding | None, kind: Kind, job: str
) -> ModelBinding:
    """The binding a job means by `asked`: the binding itself, its spec, its entry's id or its grade; None: the one of
    its kind. Raises UndeclaredResourceError."""
    of_kind = [binding for binding in bindings if binding.spec.kind is kind]
    if isinstance(asked, ModelBinding):
        found = [binding for binding in of_kind if binding == asked]
    elif asked is None:
        found = of_kind
    else:
        found = [binding for binding in of_kind if binding.spec in (asked, ModelSpec.of(asked))]
        if not found and isinstance(asked, ModelSpec):  # declared with a conversation that sends more than it says
            found = [binding for binding in of_kind if replace(binding.spec, sends=asked.sends) == asked]
        if not found and not (isinstance(asked, ModelSpec) and kind is Kind.CHAT):
            name = asked.model if isinstance(asked, ModelSpec) else asked
            found = [binding for binding in of_kind if name in (binding.spec.model, binding.entry.id)]
    if len({binding.spec for binding in found}) == 1:
        return found[0]
    what = "no model in particular" if asked is None else str(asked.spec if isinstance(asked, ModelBinding) else asked)
    named = ", ".join(str(binding.spec) for binding in of_kind) or "none"
    why = "it never declared that"
    if len(found) > 1:
        why = "it declared several (ask by the ModelSpec, or by the binding that its declaration gave)"
    raise UndeclaredResourceError(
        f"job {job} asked for {what} ({kind.value}), and {why} in requirements(); declared: {named}"
    )


def _with_limits(
    spec: ModelSpec,
    max_output_tokens: int | None,
    output: OutputSize | None,
    depth: Depth | None,
    sends: Collection[Input] | None,
) -> ModelSpec:
    if max_output_tokens is not None or output is not None:
        spec = replace(spec, max_output_tokens=max_output_tokens, output=output)
    if depth is not None:
        spec = replace(spec, depth=depth)
    return spec if sends is None else replace(spec, sends=frozenset(sends))


def _of_kind(model: Asked | None, kind: Kind) -> ModelSpec:
    if isinstance(model, ModelSpec):
        return replace(model, kind=kind)
    return ModelSpec(model, kind=kind)


def _count(amount: int) -> int:
    if not isinstance(amount, int) or amount < 1:
        raise ValueError(f"an amount must be a whole number of at least 1, not {amount!r}")
    return amount
