"""Counting: how large a call is, asked of its provider before the call enters the line, where its entry says so
(`count: provider`).

    declared ─► offline estimate ─► asked? ─► the provider's count ─► priced ─► the line
                                      └─► no endpoint, no answer, a failure: the estimate stands

A count holds nothing: no place in the line, no share of a limit, no money. What is counted is the very request that
would be sent. Of one model `AT_ONCE` are under way; whoever waits for his turn owns no task. Nobody waits longer than
the timeout, and no failure of a count is the failure of a job. A model whose counts fail is left alone for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from interlock.catalog.picker import sized
from interlock.catalog.words import OutputSize
from interlock.errors import InvalidRequestError, RateLimitedError, UpstreamError

if TYPE_CHECKING:
    from interlock.admission import Clock, Timer
    from interlock.catalog import Catalog, ModelBinding
    from interlock.clients.conversation import Conversation
    from interlock.clients.options import CallOptions

log = logging.getLogger("interlock.runtime")

#: Counts of one model under way.
AT_ONCE = 8
#: Failures in a row after which a model is left alone, and for how long at most, seconds.
FAILURES, PAUSE_S = 3, 60.0
#: Counts remembered of one model: a re-run asks for what is known.
REMEMBERED = 1_024

Found = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Question:
    """How large is this call, the `place`-th of its job's?"""

    place: int
    conversation: Conversation | str
    options: CallOptions | None
    response_model: type[Any] | None


def counted(binding: ModelBinding, tokens: int, catalog: Catalog, *, at_ceiling: bool) -> ModelBinding:
    """The binding with the provider's count in place of the estimate, and its output limit worked out anew. Raises
    ContextWindowExceededError where that leaves no room."""
    spec = binding.spec
    asked = replace(spec, max_output_tokens=None, output=OutputSize.MAX) if at_ceiling else spec
    fresh = sized(asked, binding.entry, catalog=catalog, input_tokens=tokens, calls=binding.calls)
    return replace(fresh, spec=spec, raw_input_tokens=binding.raw_input_tokens)


class Count:
    """The counts of one job. `cancel` forgets it; otherwise `done` is called once, with what was found by place."""

    __slots__ = ("_done", "_left", "_timer", "found", "over", "tasks")

    def __init__(self, questions: int, done: Callable[[Found], None]) -> None:
        self._left, self._done = questions, done
        self._timer: Timer | None = None
        self.found: dict[int, int] = {}
        self.tasks: list[Any] = []  # those under way
        self.over = False

    def ends_at(self, clock: Clock, when_s: float) -> None:
        self._timer = clock.call_at(when_s, self._finish)

    def answered(self, place: int, tokens: int | None) -> None:
        if tokens is not None:
            self.found[place] = tokens
        self._left -= 1
        if not self._left:
            self._finish()

    def cancel(self) -> None:
        if self.over:
            return
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self.tasks:
            task.cancel()

    def _finish(self) -> None:
        if not self.over:
            self.cancel()
            self._done(self.found)


class Counting:
    """One per Runtime. `client` gives the provider's client of an entry."""

    def __init__(self, clock: Clock, client: Callable[[Any], Any]) -> None:
        self._clock, self._client = clock, client
        self._lanes: dict[str, _Lane] = {}

    def ask(
        self,
        questions: Sequence[Question],
        bindings: Sequence[ModelBinding],
        done: Callable[[Found], None],
        *,
        timeout_s: float,
    ) -> Count | None:
        """Begin to count. None where there is nothing to wait for: then `done` is not called."""
        now = self._clock.now()
        asked = [(self._lane(bindings[each.place]), each) for each in questions]
        asked = [(lane, each) for lane, each in asked if lane.counts(now)]
        if not asked or timeout_s <= 0:
            return None
        count = Count(len(asked), done)
        count.ends_at(self._clock, now + timeout_s)
        for lane, question in asked:
            lane.add(count, question, bindings[question.place])
        return count

    def _lane(self, binding: ModelBinding) -> _Lane:
        entry = binding.entry
        return self._lanes.setdefault(entry.id, _Lane(entry.id, self._clock, self._client))

    async def aclose(self) -> None:
        """Wait until nothing is under way. Whoever asked has been cancelled by now."""
        tasks = [task for lane in self._lanes.values() for task in lane.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Lane:
    """The counts of one model."""

    def __init__(self, model: str, clock: Clock, client: Callable[[Any], Any]) -> None:
        self._model, self._clock, self._client = model, clock, client
        self._waiting: deque[tuple[Count, Question, ModelBinding]] = deque()
        self.tasks: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._paused_until = float("-inf")
        self._warned = False
        self._known: OrderedDict[str, int] = OrderedDict()

    def counts(self, now: float) -> bool:
        return now >= self._paused_until

    def add(self, count: Count, question: Question, binding: ModelBinding) -> None:
        self._waiting.append((count, question, binding))
        self._next()

    def _next(self) -> None:
        while self._waiting and len(self.tasks) < AT_ONCE:
            count, question, binding = self._waiting.popleft()
            if count.over:
                continue
            # In no context of a job's: what is found serves whoever asks.
            work = self._answer(count, question, binding)
            task = asyncio.get_running_loop().create_task(work, context=Context())
            self.tasks.add(task)
            count.tasks.append(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._next()

    async def _answer(self, count: Count, question: Question, binding: ModelBinding) -> None:
        tokens = await self._count(question, binding) if self.counts(self._clock.now()) else None
        if not count.over:
            count.tasks.remove(asyncio.current_task())
            count.answered(question.place, tokens)

    async def _count(self, question: Question, binding: ModelBinding) -> int | None:
        try:
            client = self._client(binding.entry)
            call = client.prepare(
                binding, question.conversation, question.options, question.response_model, stream=False
            )
            known = self._known.get(call.request_hash)
            tokens: int | None = known if known is not None else await client.count_input(call)
        except Exception as error:
            self._failed(error)
            return None
        self._failures = 0
        if tokens is None:
            self._paused_until = float("inf")
            self._warn("its provider has no endpoint that counts")
        elif known is None:
            self._known[call.request_hash] = tokens
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return tokens

    def _failed(self, error: Exception) -> None:
        if isinstance(error, InvalidRequestError) and not error.sent:
            return  # the call itself will be refused, and say why
        self._failures += 1
        hint = error.retry_after_s if isinstance(error, UpstreamError) else None
        if isinstance(error, RateLimitedError) or self._failures >= FAILURES:
            self._paused_until = self._clock.now() + min(PAUSE_S if hint is None else hint, PAUSE_S)
        self._warn(f"{type(error).__name__}: {error}" if isinstance(error, UpstreamError) else type(error).__name__)

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "the input tokens of %s were not counted by its provider (%s): the offline estimate stands (said once)",
                self._model, why,
            )  # fmt: skip
