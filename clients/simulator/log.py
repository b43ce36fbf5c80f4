"""What the provider saw, and how much of what it serves was used."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from .exchange import NOTHING_ASKED, Ask

Kind = Literal["chat", "decision", "embeddings", "count", "models", "other"]
#: The kinds that ask a model for something.
ASKING = frozenset(("chat", "decision", "embeddings"))
Cut = Literal["clean", "close", "reset", "client"]


@dataclass(slots=True, kw_only=True)
class SeenRequest:
    """One request. The fields after `ask` are filled in as its answer goes out.

    Times are seconds on the provider's clock. `headers` are lower case, credentials redacted. `status` is None while
    nothing has been sent. `cut` says that the answer did not reach its end and who ended it: a step (`clean`: a whole
    response without its terminal marker, `close`: the connection closed in mid-body, `reset`: aborted) or the `client`,
    who left. `input_tokens` and `output_tokens` are what was read and produced, cached input included.
    """

    number: int
    at_s: float
    wire: str
    path: str
    kind: Kind
    model: str
    body: dict[str, Any]
    headers: Mapping[str, str]
    ask: Ask = NOTHING_ASKED
    streamed: bool = False
    status: int | None = None
    step: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    pieces: int = 0
    finished_at_s: float | None = None
    cut: Cut | None = None
    signed_for: str | None = None  # `region/service` of an AWS signature
    refused_by: str | None = None  # the dimension of a 429 by the provider's own limits
    error: str | None = None

    @property
    def text(self) -> str:
        """What the last user turn says."""
        return self.ask.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """What was served in a window, against what the provider would really have served.

    `fractions` holds one figure a limited dimension; `fraction` is the largest: the limit that binds. 1.0 is all that
    could be had.
    """

    window_s: float
    answered: int
    refused: int
    input_tokens: int
    output_tokens: int
    fractions: Mapping[str, float] = field(default_factory=dict)

    @property
    def fraction(self) -> float:
        return max(self.fractions.values(), default=0.0)


class RequestLog:
    """Every request, or the last `keep` of them. `total` counts all, `chats` those that ask a model, `refused` the 429s
    of the provider's own limits."""

    def __init__(self, keep: int | None = None) -> None:
        self.entries: deque[SeenRequest] = deque(maxlen=keep)
        self._open = 0
        self._idle: list[Future[None]] = []
        self._lock = threading.Lock()
        self.total = 0
        self.chats = 0
        self.refused = 0
        self.dropped = False

    def add(self, entry: SeenRequest) -> None:
        self.dropped = self.dropped or len(self.entries) == self.entries.maxlen
        self.entries.append(entry)
        self.total += 1
        self.chats += entry.kind in ASKING
        with self._lock:
            self._open += 1

    def finish(self, entry: SeenRequest, now: float) -> None:
        entry.finished_at_s = now
        with self._lock:
            self._open -= 1
            waiting, self._idle = ([], self._idle) if self._open else (self._idle, [])
        for future in waiting:
            future.set_result(None)

    def idle(self) -> Future[None]:
        """Done as soon as no request is under way; from any thread."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._open:
                self._idle.append(future)
                return future
        future.set_result(None)
        return future

    def clear(self) -> None:
        """Forget all but the numbering."""
        self.entries.clear()
        self.chats = self.refused = 0
        self.dropped = False


def measure(
    entries: Iterable[SeenRequest],
    served: Mapping[str, tuple[float, float]],
    *,
    since_s: float,
    until_s: float,
    from_full: bool,
) -> Goodput:
    """Goodput of the requests accepted in a window, against (capacity, rate) by dimension.

    `from_full` counts the capacity as served too: the buckets were full when the window began.
    """
    answered = refused = input_tokens = output_tokens = 0
    for entry in entries:
        if entry.kind not in ASKING or not since_s <= entry.at_s <= until_s:
            continue
        if entry.status == 429:
            refused += 1
        elif entry.status == 200 and entry.finished_at_s is not None:
            answered += 1
            input_tokens += entry.input_tokens
            output_tokens += entry.output_tokens
    window_s = until_s - since_s
    used = {
        "requests": answered,
        "tokens": input_tokens + output_tokens,
        "input-tokens": input_tokens,
        "output-tokens": output_tokens,
    }
    fractions = {}
    for name, (capacity, rate_per_s) in served.items():
        available = rate_per_s * window_s + (capacity if from_full else 0.0)
        fractions[name] = used[name] / available if available > 0 else 0.0
    return Goodput(
        window_s=window_s,
        answered=answered,
        refused=refused,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        fractions=fractions,
    )
