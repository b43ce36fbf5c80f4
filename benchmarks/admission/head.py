"""Why the head is protected: one large call among small ones, with the line and with whoever-fits-goes.

`python -m benchmarks.admission.head [--plot FILE]` runs the same arrivals twice on virtual time: through the real
`Admission`, and through a bucket that serves whichever waiting call fits it first. A table, and the picture that stands
in docs/admission.md.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path

from interlock.admission import Admission, CallCharge, CallOutcome, Demand, ManualClock, OutcomeKind, Reservation
from interlock.catalog.entry import Accounting, Limits

TPM, BURST_S = 60_000, 30.0
LARGE, LARGE_AT_S, END_S = 24_000, 60.0, 180.0
#: Small calls ask for more than the pool refills.
LOAD = 1.6


@dataclass
class Trace:
    """The level over time, and when each call was granted: (seconds, tokens)."""

    level: list[tuple[float, float]] = field(default_factory=list)
    grants: list[tuple[float, int]] = field(default_factory=list)

    @property
    def large_at_s(self) -> float | None:
        return next((at for at, tokens in self.grants if tokens == LARGE), None)


def arrivals(seed: int = 4) -> list[tuple[float, int]]:
    """(seconds, tokens) of the calls that come, the large one among them."""
    rng, at, calls = random.Random(seed), 0.0, [(LARGE_AT_S, LARGE)]
    while at < END_S:
        tokens = rng.choice((400, 800, 1_500))
        at += rng.expovariate(LOAD * TPM / 60 / 900)
        calls.append((at, tokens))
    return sorted(calls)


async def with_the_line(calls: list[tuple[float, int]]) -> Trace:
    clock = ManualClock(0.0)
    admission = Admission(clock, jitter=lambda: 0.0)
    pool = admission.pool("p", Limits(tpm=TPM, burst_s=BURST_S))
    trace = Trace()

    def read() -> None:
        trace.level.append((clock.now(), admission.statistics().account("p:tokens").level))

    def ask(tokens: int) -> None:
        call = CallCharge(key="k", pool=pool, accounting=Accounting(), input_tokens=tokens, output_tokens=0)
        admission.submit(Demand(calls=(call,), workflow="w"), lambda r: go(r, tokens), fail)

    def go(reservation: Reservation, tokens: int) -> None:
        trace.grants.append((clock.now(), tokens))
        permit = reservation.permit("k", input_tokens=tokens, output_tokens=0)
        permit.sent()
        permit.close(CallOutcome(kind=OutcomeKind.COMPLETED))
        reservation.release()

    def fail(error: Exception) -> None:
        raise error

    for at, tokens in calls:
        clock.call_at(at, lambda tokens=tokens: ask(tokens))  # type: ignore[misc]
    while clock.now() < END_S:
        await clock.advance(0.25)
        read()
    return trace


def first_that_fits(calls: list[tuple[float, int]]) -> Trace:
    """A bucket without a line: at each instant, whoever fits goes, the longest waiting first."""
    rate, trace, waiting, todo = TPM / 60, Trace(), [], list(calls)
    level, step = TPM / 60 * BURST_S, 0.01
    for i in range(int(END_S / step)):
        now = i * step
        level = min(level + rate * step, rate * BURST_S)
        while todo and todo[0][0] <= now:
            waiting.append(todo.pop(0)[1])
        for tokens in list(waiting):
            if tokens <= level:
                level -= tokens
                waiting.remove(tokens)
                trace.grants.append((now, tokens))
        if i % 25 == 0:
            trace.level.append((now, level))
    return trace


def said(at_s: float | None) -> str:
    return "never goes" if at_s is None else f"goes after {at_s - LARGE_AT_S:.1f} s"


def plot(traces: dict[str, Trace], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(traces), 1, figsize=(9, 5.4), sharex=True, sharey=True, layout="constrained")
    for axis, (name, trace) in zip(axes, traces.items(), strict=True):
        axis.plot(*zip(*trace.level, strict=True), color="#4477aa", linewidth=1.4, label="level of the bucket")
        small = [at for at, tokens in trace.grants if tokens != LARGE]
        axis.plot(small, [-900] * len(small), "|", color="#777777", markersize=7, label="a small call goes")
        axis.axhline(LARGE, color="#cc6677", linewidth=0.9, linestyle=":", label="what the large call needs")
        axis.axvline(LARGE_AT_S, color="#cc6677", linewidth=0.9, linestyle="--", label="it asks")
        if trace.large_at_s is not None:
            axis.axvline(trace.large_at_s, color="#228833", linewidth=1.4, label="it goes")
        axis.set_title(f"{name}: the large call {said(trace.large_at_s)}", loc="left", fontsize=10)
        axis.set_ylabel("tokens")
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("seconds")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    calls = arrivals()
    traces = {"with the line": asyncio.run(with_the_line(calls)), "whoever fits goes": first_that_fits(calls)}
    print(f"{TPM:,} tokens a minute, small calls that want {LOAD:.0%} of it, one call of {LARGE:,} at {LARGE_AT_S:g} s")
    for name, trace in traces.items():
        print(f"{name:>18}: the large call {said(trace.large_at_s)}; {len(trace.grants)} calls in {END_S:g} s")
    if options.plot:
        plot(traces, options.plot)


if __name__ == "__main__":
    main()
