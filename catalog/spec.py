"""What is asked for, and what the picker answered."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .entry import ModelEntry
from .words import Depth, Grade, Input, Kind, OutputSize


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What is asked: a grade (a floor) or the exact id of an entry, and the limits of the call. A hashable value.

    `ModelSpec(Grade.SMALL, max_output_tokens=200)` or `ModelSpec("claude-haiku-direct")`. It is also the key by which a
    job fetches the client it declared. `avoid` names entries not to be picked.
    """

    model: Grade | str | None = None  # None: the kind's pin (embeddings, decision)
    max_output_tokens: int | None = None
    output: OutputSize | None = None
    depth: Depth = Depth.IMMEDIATE
    sends: frozenset[Input] = frozenset()
    kind: Kind = Kind.CHAT
    avoid: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        limit = self.max_output_tokens
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise ValueError(f"max_output_tokens must be a whole number of at least 1, not {limit!r}")
        if self.max_output_tokens is not None and self.output is not None:
            raise ValueError("give max_output_tokens or output, not both")

    def __str__(self) -> str:
        name = self.model.name if isinstance(self.model, Grade) else (self.model or f"the {self.kind} pin")
        return str(name)

    def with_limit(self, max_output_tokens: int) -> ModelSpec:
        return replace(self, max_output_tokens=max_output_tokens, output=None)

    @staticmethod
    def of(asked: ModelSpec | Grade | str) -> ModelSpec:
        return asked if isinstance(asked, ModelSpec) else ModelSpec(asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBinding:
    """What the picker chose for a spec, priced: the numbers that are both reserved and sent.

    All are tokens. `output_tokens` includes `thinking_tokens` and is exactly the wire's own limit on the answer.
    """

    spec: ModelSpec
    entry: ModelEntry
    input_tokens: int
    output_tokens: int
    thinking_tokens: int = 0
    calls: int = 1
    raw_input_tokens: int | None = None  # the estimate before its model's correction; None: a stated size
