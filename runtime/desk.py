"""The desk where a job's models are chosen, sized and handed out: catalog, picker, estimates, pools, clients.

A provider's class is imported when one of its models is first looked at, its client is built when it is first used, and
one client per entry serves every job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from interlock.catalog import Catalog
from interlock.catalog.limits import output_limit
from interlock.catalog.picker import DefaultPicker, Picker, Situation, Unable, bind
from interlock.catalog.spec import ModelBinding, ModelSpec
from interlock.catalog.tokens import TokenEstimator, estimate_text
from interlock.catalog.words import Kind, OutputSize
from interlock.clients.environment import ClientEnvironment, DataPolicy
from interlock.clients.registry import provider_class
from interlock.credentials.stores import variable
from interlock.errors import (
    ConfigurationError,
    ContextWindowExceededError,
    CredentialError,
    ModelResolutionError,
)

from .edited import LOOK_EVERY_S, EditedCatalog
from .routing import NOBODY, Caller, Routing
from .settings import ModelSettings

if TYPE_CHECKING:
    from interlock.admission import Admission, Clock, Pool, Timer
    from interlock.catalog import ModelEntry
    from interlock.clients.record import CallRecord
    from interlock.credentials import Chain
    from interlock.decisions import DecisionRequest
    from interlock.embeddings.cutting import Split
    from interlock.embeddings.packing import Caps

log = logging.getLogger("interlock.runtime")

#: Seconds for which an answer to "can this be called" is believed.
BELIEVED_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every client is built with beside its provider's settings."""

    credentials: Chain
    clock: Clock
    wall: Callable[[], datetime]
    jitter: Callable[[], float]
    keep_text: bool
    models: ModelSettings = field(default_factory=ModelSettings)


def why_not(
    entry: ModelEntry, catalog: Catalog, credentials: Chain, models: ModelSettings | None = None
) -> Unable | None:
    """Why an entry cannot be called from here: its provider's class, its extra, its credential, what the deployment
    allows. None: it can."""
    if entry.data_sharing_only and not (models or ModelSettings()).allow_data_sharing:
        return Unable(
            "it is served only where its provider may use what it is sent, and this deployment does not allow that",
            "set ModelSettings(allow_data_sharing=True)",
        )
    credential: str | None = None
    try:
        class_ = provider_class(entry.provider)
        settings = catalog.provider(entry.provider)
        credential = entry.credential or settings.credential
        credential = credential or getattr(class_, "default_credential", None)
        check = getattr(class_, "check_credentials", None)
        if check is not None:
            check(credential, settings, credentials)
        elif credential is not None:
            shape = getattr(class_, "CREDENTIAL", None)
            given = () if shape is None else (shape,)
            credentials.get(credential, *given)
    except CredentialError as error:
        name = variable(credential or "", None)
        unset = " is not set: " in str(error) and name in str(error)
        return Unable(str(error), error.remedy or (f"set {name}" if unset else ""))
    except ConfigurationError as error:
        _, install, extra = str(error).partition("pip install ")
        return Unable(str(error), f"{install}{extra}")
    return None


def _temperatures(models: ModelSettings) -> dict[tuple[str, str, str], float] | None:
    """What decisions are calibrated with. Raises ConfigurationError for a file that cannot be read."""
    if models.calibration is None:
        return None
    from interlock.decisions.calibration import Calibration

    given = models.calibration
    return (given if isinstance(given, Calibration) else Calibration.load(given)).temperatures


class ModelDesk:
    """One per Runtime."""

    def __init__(
        self, catalog: Catalog, surroundings: Surroundings, admission: Admission, picker: Picker | None = None
    ) -> None:
        self.catalog, self.estimator = catalog, TokenEstimator()
        self._surroundings, self._admission = surroundings, admission
        self._picker: Picker = picker or DefaultPicker()
        self._said_once: set[tuple[str, str]] = set()
        self._believed: dict[str, tuple[float, str | None]] = {}
        self._clients: dict[str, tuple[ModelEntry, Any]] = {}
        self._retired: list[Any] = []
        self._guard: Any = None
        self._temperatures = _temperatures(surroundings.models)
        self._edited = EditedCatalog(catalog)
        self._look_again_s = surroundings.clock.now() + LOOK_EVERY_S
        self._timer: Timer | None = None
        self._pools: set[str] = set()  # those in use
        self._private: set[str] = set()  # of these, those whose provider ends with this process
        self.routing = Routing(surroundings.clock)
        #: Called, once, when the first pool is drawn on that other processes may draw on too.
        self.on_first_pool: Callable[[], None] | None = None

    # Choosing.

    def watch(self, busy: Callable[[], bool]) -> None:
        """Look at the catalog's file from time to time while there are jobs, so that an edit reaches those that only
        wait. Nothing runs while there are none: the next one that is bound looks by itself."""
        if self._timer is None and self._edited.watched:
            clock = self._surroundings.clock
            self._timer = clock.call_at(max(self._look_again_s, clock.now()), lambda: self._look(busy))

    def _look(self, busy: Callable[[], bool]) -> None:
        self._timer = None
        self._refresh()
        if busy():
            self.watch(busy)

    def _refresh(self) -> None:
        """Take over an edited catalog file: levels carry over, running calls keep their entry. A file that is now wrong
        changes nothing and is said once."""
        now = self._surroundings.clock.now()
        if now < self._look_again_s or not self._edited.watched:
            return
        fresh, again_s = self._edited.look()
        self._look_again_s = now + again_s
        if fresh is not None:
            self.catalog, self._believed = fresh, {}
            for entry in fresh.entries.values():
                name, limits = fresh.limits_of(entry)
                if name in self._pools:
                    self._admission.pool(name, limits, shared=name not in self._private)

    def bind(
        self,
        spec: ModelSpec,
        raw_tokens: int,
        *,
        exact: bool = False,
        calls: int = 1,
        at_ceiling: bool = False,
        caller: Caller = NOBODY,
    ) -> ModelBinding:
        """The entry and the sizes. `raw_tokens` is an estimate to be corrected per model, unless it is `exact`;
        `at_ceiling` gives the answer all the room the model has, whatever the spec says. What fails its callers just
        now (`routing`) is passed over while there is a backup."""
        self._refresh()
        asked = replace(spec, max_output_tokens=None, output=OutputSize.MAX) if at_ceiling else spec
        binding = self._routed(asked, raw_tokens, calls, caller) or bind(
            asked,
            catalog=self.catalog,
            picker=self._picker,
            situation=self._situation(self._cannot_be_called),
            input_tokens=raw_tokens,
            calls=calls,
        )
        if self.routing.troubled:
            self.routing.take_probes(caller.owner, binding.entry)
        if spec.kind is Kind.EMBEDDINGS:
            self._admit_embedding(binding.entry, spec)
        if not exact:
            binding = self._corrected(binding, raw_tokens)
        return replace(binding, spec=spec) if asked is not spec else binding

    def _routed(self, spec: ModelSpec, tokens: int, calls: int, caller: Caller) -> ModelBinding | None:
        """The binding to an entry that is not passed over; None where there is no reason to look, or no such entry."""
        if not (self.routing.troubled or caller.strikes):
            return None
        situation = self._situation(lambda entry: self._cannot_be_called(entry) or self.routing.why(entry, caller))
        try:
            found = bind(
                spec, catalog=self.catalog, picker=self._picker, situation=situation, input_tokens=tokens, calls=calls
            )
        except (ModelResolutionError, ContextWindowExceededError):
            return None  # without routing it is served all the same, or the error is raised there
        return found if self._may_stand_in(found.entry, spec) else None

    def _may_stand_in(self, entry: ModelEntry, spec: ModelSpec) -> bool:
        """Another embedding model is no backup: its vectors cannot be compared with those that are asked for."""
        if spec.kind is not Kind.EMBEDDINGS:
            return True
        if isinstance(spec.model, str):
            asked = self.catalog.entry(spec.model)
            return (entry.identity or entry.id) == (asked.identity or asked.id)
        return self._guard is None or bool(self._guard.allows(entry, spec))

    def moves_on(self, binding: ModelBinding, caller: Caller) -> bool:
        """Whether a call that is bound to a model which is passed over by now would go to another one."""
        if self.routing.why(binding.entry, caller) is None:
            return False
        tokens = binding.input_tokens if binding.raw_input_tokens is None else binding.raw_input_tokens
        other = self._routed(binding.spec, tokens, binding.calls, caller)
        return other is not None and other.entry.id != binding.entry.id

    def _situation(self, callable: Callable[[ModelEntry], str | None]) -> Situation:
        return Situation(catalog=self.catalog, callable=callable, said_once=self._said_once)

    def heard(self, record: CallRecord) -> bool:
        """A request has ended: its model's breaker hears of it. Returns whether its pool has been closed by that."""
        entry = self.catalog.entries.get(record.model)
        return entry is not None and self.routing.heard(entry, record.outcome, self.pool(entry))

    def bind_texts(
        self,
        spec: ModelSpec,
        texts: Sequence[str],
        *,
        truncate: bool = False,
        split: Split | None = None,
        caller: Caller = NOBODY,
    ) -> ModelBinding:
        """An embedding model for these texts: as many calls as its caps make of them, each as large as the largest."""
        from interlock.embeddings.cutting import parts_of
        from interlock.embeddings.packing import counter, plan_requests, require_possible

        # Its window is no reason to look for another one: a text that is too long is named, or cut.
        binding = self.bind(spec, 0, exact=True, caller=caller)
        entry = binding.entry
        caps = self.text_caps(entry)
        count = counter(entry, partial(self.estimator.estimate, entry.id))
        parts = parts_of(texts, caps, count=count, truncate=truncate, split=split)
        packing = plan_requests(parts.texts, caps, [count(text) for text in parts.texts])
        require_possible(packing, parts.owners, model=entry.id, texts=len(texts))
        return replace(
            binding,
            input_tokens=packing.largest_tokens,
            raw_input_tokens=packing.largest_raw_tokens,
            calls=max(packing.calls, 1),
        )

    def text_caps(self, entry: ModelEntry) -> Caps:
        """What one request to an embedding model may carry."""
        from interlock.embeddings.packing import Caps

        caps: Caps = getattr(provider_class(entry.provider), "caps", Caps.of)(entry)
        return caps

    def bind_decisions(
        self, spec: ModelSpec, requests: Sequence[DecisionRequest], *, times: int = 1, caller: Caller = NOBODY
    ) -> ModelBinding:
        """A decision model for these requests, each so many times: as many calls as it makes of them, less what the
        caller's earlier attempts were answered, each as large as the largest."""
        from interlock.decisions.splitting import PlannedCalls

        # Questions that are too many are split, so what must fit is the state.
        tokens = max((estimate_text(request.state_text) for request in requests), default=0)
        binding = self.bind(spec, tokens, exact=True, caller=caller)
        entry = binding.entry
        class_, settings = provider_class(entry.provider), self.catalog.provider(entry.provider)

        def count(text: str) -> int:
            return self.estimator.estimate(entry.id, text)

        parts = [part for each in requests for part in class_.plan(entry, settings, each, count)] * times
        planned = PlannedCalls.of(parts if caller.kept is None else caller.kept.lacking(entry, parts))
        return replace(
            binding,
            input_tokens=planned.input_tokens,
            raw_input_tokens=getattr(planned.input_tokens, "raw", planned.input_tokens),
            output_tokens=planned.output_tokens,
            calls=max(planned.calls, 1),
        )

    def decision_output(self, binding: ModelBinding) -> ModelBinding:
        """The same for a decision of which only the size is known."""
        class_, settings = provider_class(binding.entry.provider), self.catalog.provider(binding.entry.provider)
        return replace(binding, output_tokens=class_.output_tokens(binding.entry, settings))

    def _corrected(self, binding: ModelBinding, raw_tokens: int) -> ModelBinding:
        entry = binding.entry
        tokens = int(self.estimator.corrected(entry.id, raw_tokens))
        if tokens == raw_tokens:
            tokens = raw_tokens  # one number in memory, not two equal ones: a waiting job keeps both
        if binding.spec.kind is not Kind.CHAT or tokens <= raw_tokens:
            return replace(binding, input_tokens=tokens, raw_input_tokens=raw_tokens)
        output, _ = output_limit(entry, declared=binding.output_tokens, input_tokens=tokens)
        thinking = (
            binding.thinking_tokens if output == binding.output_tokens else min(binding.thinking_tokens, output // 2)
        )
        return replace(
            binding,
            input_tokens=tokens,
            raw_input_tokens=raw_tokens,
            output_tokens=output,
            thinking_tokens=thinking,
        )

    def _admit_embedding(self, entry: ModelEntry, spec: ModelSpec) -> None:
        from interlock.embeddings.guard import EmbeddingModelGuard

        self._guard = self._guard or EmbeddingModelGuard()
        self._guard.admit(entry, spec)

    def _cannot_be_called(self, entry: ModelEntry) -> str | None:
        now = self._surroundings.clock.now()
        known = self._believed.get(entry.id)
        if known is not None and now < known[0]:
            return known[1]
        reason = why_not(entry, self.catalog, self._surroundings.credentials, self._surroundings.models)
        self._believed[entry.id] = (now + BELIEVED_S, reason)
        return reason

    # Handing out.

    def pool(self, entry: ModelEntry) -> Pool:
        name, limits = self.catalog.limits_of(entry)
        if name not in self._pools:
            self._pools.add(name)
            if getattr(provider_class(entry.provider), "in_this_process", None) and not (
                entry.base_url or self.catalog.provider(entry.provider).base_url
            ):
                self._private.add(name)
            elif self.on_first_pool is not None:
                told, self.on_first_pool = self.on_first_pool, None
                told()
        return self._admission.pool(name, limits, shared=name not in self._private)

    def outlives(self, pool: str) -> bool:
        """Whether the provider behind a pool goes on counting when this process has ended."""
        return pool not in self._private

    def client(self, entry: ModelEntry) -> Any:
        """The provider's client for an entry: the template, not yet bound to a reservation."""
        known = self._clients.get(entry.id)
        if known is not None and known[0] is entry:
            return known[1]
        if known is not None:
            self._retired.append(known[1])
        client = provider_class(entry.provider)(entry, self._environment(entry))
        self._clients[entry.id] = (entry, client)
        return client

    def _environment(self, entry: ModelEntry) -> ClientEnvironment:
        around = self._surroundings
        return ClientEnvironment(
            settings=self.catalog.provider(entry.provider),
            credentials=around.credentials,
            redactor=around.credentials.redactor,
            clock=around.clock,
            wall=around.wall,
            jitter=around.jitter,
            limits=self.catalog.limits_of(entry)[1],
            estimator=self.estimator,
            keep_text=around.keep_text,
            data_policy=DataPolicy(
                mantle_strict_project=around.models.mantle_strict_project,
                mantle_lax_project=around.models.mantle_lax_project,
            ),
            embedding_width=self.catalog.embedding_width,
            calibration=self._temperatures,
        )

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        clients = [client for _, client in self._clients.values()] + self._retired
        self._clients, self._retired = {}, []
        for client in clients:
            await client.aclose()
