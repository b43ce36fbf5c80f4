"""What a deployment decides, as plain frozen values. Durations are seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interlock.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from interlock.admission import Clock
    from interlock.catalog import Catalog
    from interlock.credentials import Chain
    from interlock.decisions import Calibration

    from .database import DatabaseProvider
    from .journal.protocol import Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How models are chosen and what may be done with the data sent to them.

    `picker` is a class with `pick(seat, situation)`; None: the catalog's own. The two Mantle projects name where
    zero-retention and data-sharing calls are accounted; a model served only under data sharing is called only if
    `allow_data_sharing`. A count that an entry's provider is asked for (`count: provider`) is waited for
    `count_timeout_s` seconds at most. `calibration` is a file that `interlock decisions eval --fit` wrote (or what is
    in one): the temperatures of decisions, by model and question.
    """

    picker: type[Any] | None = None
    mantle_strict_project: str | None = None
    mantle_lax_project: str | None = None
    allow_data_sharing: bool = False
    count_timeout_s: float = 10.0
    calibration: Calibration | Path | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Everything a Runtime is opened with. Set once, before it starts.

    `catalog`: a file, a Catalog, or None for the catalog that ships. `store`: an SQLAlchemy URL, or None to keep the
    latest records in memory only. `ledger`: where several processes share their pools, so that the limits hold for all
    of them together: "store" (in the store's database; beside an SQLite file) or a URL; None: the limits are this
    process's own. A process that is not heard of for `lease_s` is given up: what it held is the others'
    (docs/ledger.md). `accounts`: gates of one's own (`CountingGate("gpu", 2)`), for `needs.require`.
    `journal` keeps what every step of a pipeline came to in the store, so that a run that was cut off goes on
    (docs/journal.md); False: nothing is kept of it but records. `ambiguous` says what becomes of a step whose last
    attempt may have been sent: "resend" it, or "fail".
    `cost_cap`: what this Runtime may spend, "20" (USD) or "20 EUR". `keep_text` writes answers into the records.
    `freeze` keeps the garbage collector away from jobs that wait where very many do (`gc.freeze`, see
    docs/admission.md); off for a program that manages the collector by itself. `strict_declarations` refuses a call
    that its job did not declare, instead of charging it as debt. `threads` run the synchronous jobs. A job asked to
    stop gets `grace_fraction` of its timeout, within `grace_min_s` and `grace_max_s`.
    `tracer_provider` and `meter_provider` are OpenTelemetry's; None: its global ones (docs/events.md).
    `clock`, `wall` and `seed` make a run repeatable in a test.
    """

    catalog: Catalog | Path | str | None = None
    store: str | None = field(default="sqlite:///interlock.db", repr=False)  # a URL may hold a password
    ledger: str | None = field(default=None, repr=False)
    lease_s: float = 15.0
    store_durability: Literal["NORMAL", "FULL"] = "NORMAL"
    journal: bool | Journal = True
    ambiguous: Literal["resend", "fail"] = "resend"
    databases: tuple[DatabaseProvider, ...] = ()
    accounts: tuple[Any, ...] = ()
    models: ModelSettings = field(default_factory=ModelSettings)
    credentials: Chain | None = None
    cost_cap: str | None = None
    tracer_provider: TracerProvider | None = None
    meter_provider: MeterProvider | None = None
    keep_text: bool = False
    freeze: bool = True
    strict_declarations: bool = False
    threads: int = 32
    grace_fraction: float = 0.1
    grace_min_s: float = 0.5
    grace_max_s: float = 30.0
    clock: Clock | None = None
    wall: Callable[[], datetime] | None = None
    seed: int | None = None

    def check(self) -> None:
        """Raises ConfigurationError for a word that means nothing, or seconds that no lease and no grace can have."""
        for name, words in (("ambiguous", ("resend", "fail")), ("store_durability", ("NORMAL", "FULL"))):
            if getattr(self, name) not in words:
                raise ConfigurationError(f"{name}= is {' or '.join(map(repr, words))}, not {getattr(self, name)!r}")
        for name, least in (("lease_s", "above 0"), ("grace_min_s", "0 or more"), ("grace_max_s", "0 or more")):
            seconds = getattr(self, name)
            if not isinstance(seconds, int | float) or not 0 <= seconds < inf or (name == "lease_s" and not seconds):
                raise ConfigurationError(f"{name}= is seconds, {least}, not {seconds!r}")
        if not isinstance(self.grace_fraction, int | float) or not 0 <= self.grace_fraction < inf:
            raise ConfigurationError(f"grace_fraction= is a part of a timeout, 0 or more, not {self.grace_fraction!r}")

    def grace_s(self, timeout_s: float | None) -> float:
        """Seconds between asking a job to stop and cancelling it hard."""
        if timeout_s is None:
            return self.grace_max_s
        return min(max(timeout_s * self.grace_fraction, self.grace_min_s), self.grace_max_s)
