"""What every client is built with, whatever it calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from interlock.admission.clock import Clock, SystemClock
from interlock.catalog.entry import Limits, ProviderSettings

if TYPE_CHECKING:
    from interlock.catalog.tokens import TokenEstimator
    from interlock.credentials import Chain
    from interlock.credentials.redaction import Redactor


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPolicy:
    """Where data may go: the projects that Mantle's calls are accounted to, as the deployment names them."""

    mantle_strict_project: str | None = None
    mantle_lax_project: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEnvironment:
    """The surroundings of a client: its provider's settings, where secrets come from, time, and what may be kept.

    `limits` are those of the entry's pool, resolved; the simulated provider makes them bind. `estimator` is the one
    that priced the call; with it the template notices a call larger than was declared, and corrects the estimate by
    what the provider reports. `keep_text` writes the answer's text into the record.
    """

    settings: ProviderSettings
    credentials: Chain
    redactor: Redactor
    clock: Clock = field(default_factory=SystemClock)
    wall: Callable[[], datetime] = utc_now
    jitter: Callable[[], float] = random.random
    limits: Limits | None = None
    estimator: TokenEstimator | None = None
    keep_text: bool = False
    data_policy: DataPolicy = field(default_factory=DataPolicy)
    embedding_width: int = 1024  # the catalog's one width: what every vector is fitted to
    #: What decisions are calibrated with: (entry id, wire model id, fingerprint of the question) -> temperature.
    calibration: Mapping[tuple[str, str, str], float] | None = None
