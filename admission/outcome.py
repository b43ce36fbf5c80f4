"""How a call ended, as admission needs to know it: what to settle, what to give back, what the throttle learns.

| kind          | tokens                          | the request | throttle                       |
|---------------|---------------------------------|-------------|--------------------------------|
| COMPLETED     | settled to the reported usage   | spent       | a success                      |
| RATE_LIMITED  | given back                      | spent       | a 429: hold, drain, slow down  |
| OVERLOADED    | given back                      | spent       | a 529: slow down harder        |
| REJECTED      | given back                      | spent       | nothing (another 4xx, quota)   |
| UNKNOWN       | the reservation stays           | spent       | nothing (5xx, lost, timed out) |
| ABANDONED     | settled to what was seen so far | spent       | nothing (cancelled, left)      |
| UNSENT        | given back                      | given back  | nothing                        |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from interlock.catalog.usage import Usage


class OutcomeKind(StrEnum):
    COMPLETED = "completed"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    ABANDONED = "abandoned"
    UNSENT = "unsent"


class Dimension(StrEnum):
    """What a published limit counts."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedLimit:
    """One dimension as the provider's headers state it: per minute; `reset_s` is seconds until it is full again."""

    limit: float | None = None
    remaining: float | None = None
    reset_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """The end of one call. `retry_after_s` is the provider's own hint, already checked to be finite and >= 0.

    `day_spent`: it was refused because a limit per day is used up; the pool is then closed until that is over.
    """

    kind: OutcomeKind
    usage: Usage | None = None
    retry_after_s: float | None = None
    reported: Mapping[Dimension, ReportedLimit] = field(default_factory=dict)
    day_spent: bool = False
