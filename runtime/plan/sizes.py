"""How large calls will turn out and how long they will take: from recorded calls, or from stated assumptions."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from interlock.catalog.words import Kind

if TYPE_CHECKING:
    from ..store.rows import CallRow
    from .workload import PlannedCall, PlannedJob

#: Recorded calls of one kind below which those of a wider kind are drawn from instead.
ENOUGH = 5
#: How unsure an assumed mean is (the standard deviation of its logarithm), and how unlike the answers are around it.
UNSURE, UNLIKE = 0.25, 0.5
#: How far the input of recorded calls may move an estimate that is not of the same calls.
LEAST, MOST = 0.5, 1.25
#: What is reserved above what is used: an estimate settles above the middle.
ABOVE = 1.1

#: (model, workflow, job); an empty one stands for any.
Key = tuple[str, str, str]


class Answered(NamedTuple):
    """One call that was answered: tokens in, tokens out, seconds."""

    input_tokens: int
    output_tokens: int
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What is taken where nothing was recorded: the share of its limit that a chat answer uses, seconds to its first
    token and tokens a second after that; `local_s` is the time of an embedding or a decision."""

    output_share: float = 0.25
    latency_s: float = 1.0
    tokens_per_s: float = 80.0
    local_s: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """`recorded` holds answered calls by their key, `requests` their input tokens by the request's hash, and `pairs`
    (estimated, used) input tokens by model."""

    assumptions: Assumptions = field(default_factory=Assumptions)
    recorded: Mapping[Key, tuple[Answered, ...]] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    pairs: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[CallRow], assumptions: Assumptions | None = None) -> Sizes:
        """From what a store has of calls that were answered."""
        recorded: dict[Key, list[Answered]] = {}
        requests: dict[str, int] = {}
        for row in rows:
            record = row.record
            used = record.usage.total_input_tokens
            if record.outcome != "ok" or record.usage.estimated or used is None:
                continue
            answered = Answered(used, record.usage.output_tokens or 0, record.latency_s)
            requests[record.request_hash] = used
            for key in keys(record.model, row.workflow, row.job):
                recorded.setdefault(key, []).append(answered)
        return cls(
            assumptions=assumptions or Assumptions(),
            recorded={key: tuple(found) for key, found in recorded.items()},
            requests=requests,
        )

    def known(self, job: PlannedJob, call: PlannedCall) -> tuple[Answered, ...]:
        """The recorded calls that are most like it; empty where there are none."""
        found: tuple[Answered, ...] = ()
        for key in keys(call.entry.id, job.workflow, job.name):
            found = self.recorded.get(key, ())
            if len(found) >= ENOUGH:
                break
        return found

    def expected(self, job: PlannedJob, call: PlannedCall) -> Answered:
        """Its mean."""
        known = self.known(job, call)
        if known:
            tokens = sum(each.output_tokens for each in known) / len(known)
            latency_s = sum(each.latency_s for each in known) / len(known)
        else:
            tokens = call.output_tokens * self.assumptions.output_share
            latency_s = self.latency_s(call, tokens)
        if call.expected_tokens is not None:
            tokens = call.expected_tokens
        return Answered(call.input_tokens, min(round(tokens), call.output_tokens), latency_s)

    def latency_s(self, call: PlannedCall, tokens: float) -> float:
        """Assumed seconds for an answer of so many tokens."""
        assumed = self.assumptions
        return (
            assumed.local_s if call.entry.kind is not Kind.CHAT else assumed.latency_s + tokens / assumed.tokens_per_s
        )


def keys(model: str, workflow: str, job: str) -> tuple[Key, ...]:
    """The kinds a call belongs to, the narrowest first."""
    return (model, workflow, job), (model, "", job), (model, "", "")


class Fit(NamedTuple):
    """Used input tokens from estimated ones: `fixed + share * estimated`."""

    fixed: float
    share: float

    def of(self, estimated: int) -> float:
        return max(self.fixed + self.share * estimated, 1.0)


def fitted(pairs: Sequence[tuple[int, int]]) -> Fit:
    """The straight line nearest to (estimated, used) pairs: what an estimate adds to every call (a schema, say, that a
    provider does not count) is no share of it. Through nought where the pairs do not tell."""
    mean_x = sum(guess for guess, _ in pairs) / len(pairs)
    mean_y = sum(used for _, used in pairs) / len(pairs)
    spread = sum((guess - mean_x) ** 2 for guess, _ in pairs)
    if len(pairs) >= 2 * ENOUGH and spread > 0:
        share = sum((guess - mean_x) * (used - mean_y) for guess, used in pairs) / spread
        if 0.1 < share < 4.0:
            return Fit(mean_y - share * mean_x, share)
    return Fit(0.0, mean_y / max(mean_x, 1.0))


def recorded_shares(sizes: Sizes, lines: Sequence[Sequence[PlannedJob]]) -> dict[Key, float]:
    """Used over estimated input tokens where calls of the same job, but not the same calls, were recorded. Within
    bounds: they may have been about something else."""
    estimated: dict[Key, list[int]] = {}
    for jobs in lines:
        for job in jobs:
            for call in job.calls:
                estimated.setdefault((call.entry.id, job.workflow, job.name), []).append(call.input_tokens)
    shares: dict[Key, float] = {}
    for key, guesses in estimated.items():
        known = sizes.recorded.get(key, ())
        if len(known) >= ENOUGH and any(guesses):
            ratio = sum(each.input_tokens for each in known) / len(known) / (sum(guesses) / len(guesses))
            shares[key] = min(max(ratio, LEAST), MOST)
    return shares


class Draws:
    """One possible future. The recorded calls are resampled once for it, so that few of them make the forecast wide;
    an assumed mean is drawn once for it too. Then each call is drawn by itself. The same seed gives the same."""

    def __init__(self, sizes: Sizes, shares: Mapping[Key, float], seed: int) -> None:
        self._sizes, self._shares, self._rng = sizes, shares, random.Random(seed)
        self._fits = {
            model: fitted(self._rng.choices(pairs, k=len(pairs)))
            for model, pairs in sizes.pairs.items()
            if len(pairs) >= ENOUGH
        }
        self._resampled: dict[int, tuple[Answered, ...]] = {}
        self._assumed = math.exp(self._rng.gauss(-UNSURE * UNSURE / 2, UNSURE))

    def reserved(self, job: PlannedJob, call: PlannedCall) -> int:
        """The input tokens that are reserved, once the estimate has been corrected by what came back."""
        used = self._used(job, call)
        return call.input_tokens if used is None else math.ceil(used * ABOVE)

    def __call__(self, job: PlannedJob, call: PlannedCall) -> Answered:
        known, rng = self._sizes.known(job, call), self._rng
        latency_s = call.latency_s
        if known:
            again = self._resampled.get(id(known))
            if again is None:
                again = self._resampled[id(known)] = tuple(rng.choices(known, k=len(known)))
            _, tokens, took_s = again[int(rng.random() * len(again))]
            latency_s = took_s if latency_s is None else latency_s
        else:
            share = self._sizes.assumptions.output_share * self._assumed
            tokens = round(call.output_tokens * share * math.exp(rng.gauss(-UNLIKE * UNLIKE / 2, UNLIKE)))
        tokens = min(tokens if call.expected_tokens is None else call.expected_tokens, call.output_tokens)
        used = self._used(job, call)
        return Answered(
            call.input_tokens if used is None else round(used),
            tokens,
            self._sizes.latency_s(call, tokens) if latency_s is None else latency_s,
        )

    def _used(self, job: PlannedJob, call: PlannedCall) -> float | None:
        """The input tokens it will be counted as; None where nothing tells."""
        fit = self._fits.get(call.entry.id)
        if fit is not None:
            return fit.of(call.input_tokens)
        share = self._shares.get((call.entry.id, job.workflow, job.name))
        return None if share is None else max(share * call.input_tokens, 1.0)
