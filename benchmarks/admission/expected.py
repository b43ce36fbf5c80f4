"""What to reserve for an answer whose length nobody knows: `output: expected`, where output alone is metered.

    python -m benchmarks.admission.expected [--seeds 5] [--minutes 30]

The provider has one bucket, of output tokens, and wants something in it to begin a call. It takes what is produced:
`end` when the answer is there, `while` token by token as it grows. The callers always have work, of one key: a tenth of
the limit on average, as three families of lengths. Goodput is what was produced after minute two against what the
bucket could give; refused is the share of 429s.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import product
from math import log
from statistics import fmean

from interlock.admission import Admission, CallCharge, CallOutcome, Demand, OutcomeKind, Reservation
from interlock.admission.expected import ExpectedOutput
from interlock.catalog.entry import Accounting, Limits
from interlock.catalog.usage import Usage

from .virtual import VirtualTime

LIMIT, RATE_PER_MIN, WARM_S = 8_192, 60_000.0, 120.0
TOKENS_PER_S = 60.0  # of one answer
FAMILIES: dict[str, Callable[[random.Random], float]] = {
    "tenth": lambda rng: rng.uniform(0.5, 1.5) * LIMIT / 10,
    "lognormal": lambda rng: min(rng.lognormvariate(log(LIMIT / 10) - 0.5 * 1.2**2, 1.2), LIMIT),
    "bimodal": lambda rng: rng.uniform(3_000, 7_000) if rng.random() < 0.12 else rng.uniform(20, 400),
}


class Rule(ExpectedOutput):
    """One of the rules compared: `q` None is the running mean, and `age` off forgets what is under way."""

    __slots__ = ("age", "q")

    def __init__(self, q: float | None, age: bool) -> None:
        super().__init__()
        self.q, self.age = q, age

    def expect(self, accounting: Accounting, key: Hashable, kind: Hashable, limit: float) -> float:
        outputs, _ = self.known(key, kind)
        if outputs is None:
            return limit
        tokens = outputs.mean if self.q is None else outputs.quantile(self.q)
        return min(max(tokens, outputs.grown) if self.age else tokens, limit)


def rule(name: str) -> ExpectedOutput | None:
    """A fresh one by its name: `limit`, `mean`, `p50`, `p75`, `p90`, each also with `+age`."""
    base, _, age = name.partition("+")
    if base == "limit":
        return None
    return Rule(None if base == "mean" else float(base[1:]) / 100, bool(age))


NAMES = ("limit", "mean", "p50", "p75", "p90", "mean+age", "p50+age", "p75+age", "p90+age")


class Bucket:
    """The provider's: `growing` answers take from it at `TOKENS_PER_S` each, others at their end."""

    def __init__(self, capacity: float, rate: float) -> None:
        self.capacity, self.rate, self.level, self.at, self.growing = capacity, rate, capacity, 0.0, 0

    def to(self, now: float) -> None:
        change = (self.rate - self.growing * TOKENS_PER_S) * (now - self.at)
        self.level, self.at = min(self.level + change, self.capacity), now


@dataclass
class Result:
    goodput: float
    refused: float


class Callers:
    def __init__(self, name: str, family: str, when: str, burst_s: float, callers: int, seed: int) -> None:
        self.time, self.rng = VirtualTime(), random.Random(seed)
        self.admission = Admission(self.time, jitter=self.rng.random)
        self.pool = self.admission.pool("p", Limits(output_tpm=RATE_PER_MIN, burst_s=burst_s))
        expected = rule(name)
        self.accounting = Accounting(output="limit" if expected is None else "expected")
        if expected is not None:
            self.pool.expected = expected
        self.bucket = Bucket(RATE_PER_MIN / 60 * burst_s, RATE_PER_MIN / 60)
        self.length, self.when, self.callers = FAMILIES[family], when, callers
        self.produced, self.asked, self.refused = 0.0, 0, 0

    def start(self) -> None:
        for _ in range(self.callers):
            self.submit(None)

    def submit(self, ticket: object) -> None:
        call = CallCharge(
            key="k", pool=self.pool, accounting=self.accounting, input_tokens=100, output_tokens=LIMIT
        )  # fmt: skip
        self.admission.submit(Demand(calls=(call,), kind="one"), self.run, self.fail, ticket=ticket)  # type: ignore[arg-type]

    def fail(self, error: Exception) -> None:
        raise error

    def run(self, reservation: Reservation) -> None:
        now, bucket = self.time.now(), self.bucket
        permit = reservation.permit("k", input_tokens=100, output_tokens=LIMIT)
        permit.sent()
        bucket.to(now)
        counts = now > WARM_S
        self.asked += counts
        if bucket.level < 1:
            self.refused += counts
            wait_s = (1 - bucket.level) / bucket.rate
            self.time.call_at(now + 0.1, lambda: self.limited(reservation, permit, wait_s))
            return
        tokens = max(round(self.length(self.rng)), 1)
        begins = now + self.rng.uniform(0.3, 1.0)
        if self.when == "while":
            self.time.call_at(begins, lambda: self.grow(1))
        self.time.call_at(begins + tokens / TOKENS_PER_S, lambda: self.done(reservation, permit, tokens))

    def grow(self, by: int) -> None:
        self.bucket.to(self.time.now())
        self.bucket.growing += by

    def done(self, reservation: Reservation, permit: object, tokens: int) -> None:
        now = self.time.now()
        if self.when == "while":
            self.grow(-1)
        else:
            self.bucket.to(now)
            self.bucket.level -= tokens
        if now > WARM_S:
            self.produced += tokens
        permit.close(  # type: ignore[attr-defined]
            CallOutcome(kind=OutcomeKind.COMPLETED, usage=Usage(input_tokens=100, output_tokens=tokens))
        )
        reservation.release()
        self.submit(None)

    def limited(self, reservation: Reservation, permit: object, wait_s: float) -> None:
        hint = max(float(-(-wait_s // 1)), 1.0)
        permit.close(CallOutcome(kind=OutcomeKind.RATE_LIMITED, retry_after_s=hint))  # type: ignore[attr-defined]
        reservation.release()
        self.submit(reservation.ticket)


def simulate(
    name: str, family: str, when: str, *, burst_s: float = 60.0, callers: int = 200, seed: int = 0, minutes: float = 30
) -> Result:
    house = Callers(name, family, when, burst_s, callers, seed)
    house.time.call_at(0.0, house.start)
    house.time.run(WARM_S)
    house.bucket.to(WARM_S)
    stock = house.bucket.level
    house.time.run(minutes * 60)
    house.bucket.to(minutes * 60)
    could = RATE_PER_MIN * (minutes - WARM_S / 60) + stock
    return Result(house.produced / could, house.refused / max(house.asked, 1))


def table(seeds: int, minutes: float, callers: int) -> Iterator[str]:
    head = f"{'burst_s':>7} {'lengths':10}" + "".join(f" {name:>15}" for name in NAMES)
    yield f"goodput, share of 429s: the worse of taken at the end and while it grows; {seeds} seeds, {minutes:g} min"
    yield head
    for burst_s, family in product((60.0, 10.0), FAMILIES):
        row = f"{burst_s:7g} {family:10}"
        for name in NAMES:
            ways = []
            for when in ("end", "while"):
                runs = [
                    simulate(name, family, when, burst_s=burst_s, callers=callers, seed=seed, minutes=minutes)
                    for seed in range(seeds)
                ]
                ways.append((fmean(r.goodput for r in runs), fmean(r.refused for r in runs)))
            row += f"   {min(g for g, _ in ways):5.3f} {max(r for _, r in ways):6.2%}"
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--callers", type=int, default=200)
    asked = parser.parse_args()
    for line in table(asked.seeds, asked.minutes, asked.callers):
        print(line, flush=True)


if __name__ == "__main__":
    main()
