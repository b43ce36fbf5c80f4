"""Which calls are of one kind: what an expected output is learnt by. One object a kind, however many jobs wait."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .requirements import JobRequirements

#: Kinds remembered; a new one of an old kind is only an object more.
REMEMBERED = 4_096


class CallKinds:
    """Kinds are equal where the workflow, the job, the entries, the system prompt, the tools and the shape are."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def of(self, job: str, workflow: str, needs: JobRequirements) -> Hashable:
        """None where no model of the job is metered by what it produces: nothing is learnt then."""
        if not any(binding.entry.accounting.output == "expected" for binding in needs.bindings):
            return None
        entries = tuple([binding.entry.id for binding in needs.bindings])
        kind = (job, workflow, entries, *needs.likeness)
        number = hash(kind)  # not the texts: a prompt is long; two that collide share an estimate
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        return self._known.setdefault(number, number)


def likeness(conversation: Any, options: Any, response_model: type[Any] | None) -> tuple[Any, ...]:
    """What calls of one kind have in common, of one that is declared with its conversation. Hashable."""
    tools = tuple([tool.name for tool in options.tools]) if options is not None else ()
    return getattr(conversation, "system", None), response_model, tools
