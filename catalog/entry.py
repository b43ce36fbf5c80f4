"""One model on one provider, as the catalog file states it. Pure data: strict, frozen, no defaults that guess.

Fields are the file's own names; a number's unit is in its comment. How each is used stands where it is used: the picker
(grade, inputs, status), the output limit (window, ceilings), admission (limits, accounting), pricing (prices), clients
(provider, wire id, base_url, structured, caching).
"""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from .days import ROLLING, day_reset
from .words import Depth, Grade, Input, Kind, Status

#: What `parameters` of an entry may set: the options of a call that every wire names alike.
PARAMETERS = frozenset({"temperature", "top_p", "seed", "stop"})

_SECRET_LOOK = re.compile(r"(sk|pk|rk)-|AIza|A[KS]IA[0-9A-Z]{8}|.{65}")


def _credential_id(value: str) -> str:
    # The value is not shown: whoever wrote a key here must not find it in a log.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value) or _SECRET_LOOK.match(value):
        raise ValueError("must be the id of a credential, such as anthropic-api-key, and never the secret itself")
    return value


def _day_resets(value: str) -> str:
    day_reset(value)  # raises ValueError
    return value


CredentialId = Annotated[str, AfterValidator(_credential_id)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Price = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, arbitrary_types_allowed=False)

    #: One word that stands for a whole mapping in the file.
    shorthands: ClassVar[dict[str, dict[str, Any]]] = {}


class Limits(Strict):
    """Published limits of a pool. Rates are per minute (`rpm`, `tpm`, ...) or per day (`rpd`, `tpd`).

    `day_resets` says when the day's are there again: `rolling` refills them continuously, `00:00 America/Los_Angeles`
    all at once at that time of each day; with such a time and no `rpd` or `tpd` a pool whose day the provider calls
    spent is closed until then. `burst_s` is how many seconds of the rate may be taken at once after idling. `fixed`
    keeps the provider's own headers from adjusting them (`limits: fixed` in the file is that alone). `pool` names a
    shared pool instead; then nothing else may stand beside it.
    """

    shorthands: ClassVar[dict[str, dict[str, Any]]] = {"fixed": {"fixed": True}}

    pool: str | None = None
    rpm: Positive | None = None
    tpm: Positive | None = None
    input_tpm: Positive | None = None
    output_tpm: Positive | None = None
    rpd: Positive | None = None
    tpd: Positive | None = None
    day_resets: Annotated[str, AfterValidator(_day_resets)] = ROLLING
    burst_s: Positive = 60.0
    max_concurrent: Count | None = None
    fixed: bool = False
    as_of: date | None = None
    source: str | None = None

    @model_validator(mode="after")
    def _pool_stands_alone(self) -> Limits:
        beside = sorted(self.model_fields_set - {"pool"})
        if self.pool is not None and beside:
            raise ValueError(f"pool {self.pool!r} already has limits: move {', '.join(beside)} to that pool")
        return self


class Accounting(Strict):
    """What a call is charged at its start and settles to (provider facts, as data).

    With `output: expected` (the provider meters what is produced) a call reserves what calls of its kind put out
    before: their `expected_quantile`, or what an answer of theirs under way has put out on average if that is more;
    never below `expected_floor_tokens`, never above its own output limit.
    """

    output: Literal["limit", "expected"] = "limit"
    expected_quantile: Annotated[float, Field(gt=0, lt=1)] = 0.5
    expected_floor_tokens: Annotated[int, Field(ge=0)] = 0
    #: The output limit is checked against the input tokens too, when the call starts; it comes back at the end.
    limit_on_input: bool = False
    cache_reads: Literal["free", "counted"] = "counted"
    output_burndown: Positive = 1.0  # limit tokens spent per output token, at settlement


def _currency(text: str) -> str:
    if len(text) == 3 and text.isascii() and text.isalpha() and text.isupper():
        return text
    raise ValueError(f"must be a currency as three capital letters, such as USD, not {text[:20]!r}")


class PriceTier(Strict):
    """Prices that hold once the whole input is larger than `above_input_tokens`."""

    above_input_tokens: Count
    input: Price
    output: Price = Decimal(0)
    cache_read: Price | None = None
    cache_write: Price | None = None
    cache_write_1h: Price | None = None  # of what is kept for an hour; None: as cache_write


class Prices(Strict):
    """Price per `per` tokens, in `currency`. An explicit 0 is free; no `prices` at all is unknown."""

    currency: Annotated[str, AfterValidator(_currency)] = "USD"
    per: Count = 1_000_000
    input: Price
    output: Price = Decimal(0)
    cache_read: Price | None = None  # None: the input price
    cache_write: Price | None = None
    cache_write_1h: Price | None = None  # of what is kept for an hour; None: as cache_write
    tiers: tuple[PriceTier, ...] = ()
    as_of: date | None = None
    source: str | None = None


class Thinking(Strict):
    """How a model thinks: `mode` is how it is asked for; `budgets` overrides the share of a depth, in tokens."""

    mode: Literal["none", "budget", "adaptive", "effort"] = "none"
    budgets: dict[Depth, int] = Field(default_factory=dict)


class ModelEntry(Strict):
    """One model on one provider."""

    id: Annotated[str, Field(min_length=1)]
    identity: str | None = None  # the model behind it, whoever serves it; None: the id itself
    kind: Kind = Kind.CHAT
    grade: Grade | None = None  # chat only
    provider: str
    wire_model_id: str
    context_window: Count | None = None  # tokens
    max_output_tokens: Count | None = None
    inputs: frozenset[Input] = frozenset({Input.TEXT})
    thinking: Thinking = Thinking()
    structured: Literal["native", "tool", "tool_auto", "prompt"] = "prompt"
    caching: Literal["none", "marks", "automatic"] = "none"
    cache_ttl: Literal["5m", "1h"] | None = None
    count: Literal["offline", "provider"] = "offline"  # chat: who says how large a call is before it is sent
    dimensions: Count | None = None  # embeddings: the native width of its vectors
    requested_dimensions: Count | None = None  # embeddings: the width asked for, where the wire can ask
    max_batch_items: Count | None = None  # embeddings: texts a request; decisions: questions a request
    max_batch_tokens: Count | None = None  # embeddings: tokens a request
    #: Embeddings: what is put before each text, for a model that is told so and not by a parameter what it is for.
    prefixes: dict[Literal["document", "query"], str] = Field(default_factory=dict)
    limits: Limits = Limits()
    accounting: Accounting = Accounting()
    prices: Prices | None = None
    base_url: str | None = None  # overrides the provider's
    credential: CredentialId | None = None  # overrides the provider's
    timeout_s: Positive | None = None  # of one attempt; overrides the provider's
    parameters: dict[str, Any] = Field(default_factory=dict)  # temperature, top_p, seed, stop: what the wire takes
    unsupported: frozenset[str] = (
        frozenset()
    )  # what this model refuses, by name; forced_tool_choice: any or a named tool
    provider_options: dict[str, Any] = Field(default_factory=dict)  # merged last into the wire
    fallbacks: tuple[str, ...] = ()
    named_only: bool = False  # picked by its id, a pin or a fallback; never because its grade fits
    data_sharing_only: bool = False  # served only where its provider may keep and use what it is sent
    status: Status = Status.OPEN

    @field_validator("parameters")
    @classmethod
    def _known_parameters(cls, value: dict[str, Any]) -> dict[str, Any]:
        if unknown := sorted(value.keys() - PARAMETERS):
            known = ", ".join(sorted(PARAMETERS))
            raise ValueError(f"{unknown[0]} is none of {known}: what one wire alone knows goes into provider_options")
        return value

    @field_validator("grade", mode="before")
    @classmethod
    def _grade_by_name(cls, value: Any) -> Any:
        return Grade[value] if isinstance(value, str) and value in Grade.__members__ else value

    @model_validator(mode="after")
    def _parts_agree(self) -> ModelEntry:
        if self.kind is Kind.CHAT and self.grade is None:
            raise ValueError("a chat model needs a grade")
        if self.kind is not Kind.CHAT and self.grade is not None:
            raise ValueError(f"only chat models have a grade, not {self.kind.value}")
        if self.kind is not Kind.CHAT and self.count == "provider":
            raise ValueError(f"only chat models are counted by their provider, not {self.kind.value}")
        if self.grade is Grade.CEILING:
            raise ValueError("CEILING is asked for, not carried: the strongest model is MEGA at most")
        if refused := sorted(self.parameters.keys() & self.unsupported):
            raise ValueError(f"{refused[0]} is set in parameters and listed as unsupported")
        if self.max_output_tokens and self.context_window and self.max_output_tokens > self.context_window:
            raise ValueError(f"max_output_tokens {self.max_output_tokens} is above the window {self.context_window}")
        return self

    @property
    def pool(self) -> str:
        """The name of the pool whose limits it draws on: a shared one, or one of its own."""
        return self.limits.pool or f"model:{self.id}"


class ProviderSettings(Strict):
    """What all entries of one provider key share."""

    credential: CredentialId | None = None
    base_url: str | None = None
    region: str | None = None
    timeout_s: Positive = 600.0  # one attempt, from send to last byte
    idle_timeout_s: Positive = 60.0  # between two events of a stream
    max_connections: Count = 64
    options: dict[str, Any] = Field(default_factory=dict)  # what one provider alone knows
