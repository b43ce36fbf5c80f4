"""A step that runs: what is kept of it between its asking and its outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..store.book import DONE
from .codec import dumps
from .replay import Again

if TYPE_CHECKING:
    from interlock.catalog.spec import ModelBinding

    from ..database import DatabaseNeed
    from ..stopper import Stopper
    from ..store.rows import CallRow


class LiveStep:
    """`base` is the number of attempts of earlier lives of the run. `interrupted`: it is being stopped by something
    that may come out otherwise the next time, so its cancellation is no outcome.

    Rows of calls are held back until the event loop's next turn: where the job returns right after its last call, its
    outcome and that call's row are one commit.
    """

    __slots__ = (
        "_flushing", "_keep", "again", "base", "begun", "calls", "fingerprint", "interrupted", "job", "stopper", "text",
        "written",
    )  # fmt: skip

    def __init__(
        self,
        job: str,
        fingerprint: str,
        stopper: Stopper | None,
        keep: Callable[[Sequence[CallRow]], Awaitable[None]],
        *,
        again: Again = Again.FIRST,
        base: int = 0,
    ) -> None:
        self.job, self.fingerprint, self.stopper = job, fingerprint, stopper
        self.again, self.base, self.begun, self.interrupted = again, base, False, False
        self.text: str | None = None
        self.calls: list[CallRow] = []
        self.written: list[Awaitable[None]] = []
        self._keep = keep
        self._flushing: asyncio.Handle | None = None

    @property
    def stopped_from_without(self) -> bool:
        """Whether a cancellation of it is none of the pipeline's own doing."""
        return self.interrupted or (self.stopper is not None and self.stopper.reason is not None)

    def result(self, value: Any, step_id: str) -> None:
        """Write the result down before anything is committed. Raises UnencodableError naming the step and the type."""
        self.text = dumps(value, f"the result of step {step_id!r} ({self.job})")

    def record(self, row: CallRow) -> Awaitable[None]:
        self.calls.append(row)
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_soon(self.flush)
        return DONE

    def hold(self) -> list[CallRow]:
        """What is not queued yet, to be committed with the outcome."""
        self.hold_back()
        held, self.calls = self.calls, []
        return held

    def hold_back(self) -> None:
        """Queue nothing by itself: the outcome, or the next attempt, is about to."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None

    def flush(self) -> None:
        held = self.hold()
        if held:
            self.written.append(self._keep(held))


def requests_of(bindings: Iterable[ModelBinding], databases: Iterable[DatabaseNeed]) -> str | None:
    """What an attempt may do to the outside, as JSON: None where it was declared to need nothing."""
    calls = [
        [
            b.entry.id,
            b.entry.provider,
            b.entry.wire_model_id,
            str(b.spec.kind),
            b.input_tokens,
            b.output_tokens,
            b.calls,
        ]
        for b in bindings
    ]
    needed = [need.provider for need in databases if need.transaction]
    if not calls and not needed:
        return None
    said: dict[str, Any] = {"calls": calls}
    if needed:
        said["databases"] = [provider.name for provider in needed]
        said["says"] = all(provider.outcomes for provider in needed)
    return json.dumps(said, separators=(",", ":"))


#: The requests of a step that sends nothing, and that is the same done twice as once.
TELLS_ITSELF = '{"says":true}'


def commits_alone(requests: str | None) -> bool:
    """Whether all an attempt could do was to commit to databases that say whether it did."""
    said = json.loads(requests) if requests is not None else {}
    return not said.get("calls") and bool(said.get("says"))
