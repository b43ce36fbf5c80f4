"""One process, one embedding model: vectors of two models look alike and mean nothing to each other."""

from __future__ import annotations

from interlock.catalog.entry import ModelEntry
from interlock.catalog.spec import ModelSpec
from interlock.errors import ModelResolutionError


class EmbeddingModelGuard:
    """Remembers the first model that was picked and refuses another. A model named by its exact id always passes.

    Two entries of one `identity` are one model, whoever serves it. Whoever binds clients holds one guard.
    """

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: ModelEntry | None = None

    def allows(self, entry: ModelEntry, spec: ModelSpec) -> bool:
        """Whether `admit` would take it: a backup that it would not is none."""
        first = self._first
        if isinstance(spec.model, str) or first is None:
            return True
        return (entry.identity or entry.id) == (first.identity or first.id)

    def admit(self, entry: ModelEntry, spec: ModelSpec) -> None:
        """ModelResolutionError when `entry` is another model than the first one and the spec did not name it."""
        if isinstance(spec.model, str):
            return
        self._first = first = self._first or entry
        if not self.allows(entry, spec):
            raise ModelResolutionError(
                f"this process has embedded with {first.id} and would now use {entry.id}, whose vectors cannot be "
                f"compared with those: name the model exactly (model={entry.id!r}) if both are wanted, or pin one"
            )
