"""What the raw files say: goodput, refusals and waits, from what each contender's provider saw. Pure.

A call waits from the instant its caller asked until the request that was served arrived at the provider. A call that
was not served by the end has waited until then, at least: that is how a starved call shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..fluid import Arrival, fluid_finishes
from .rows import Row
from .workload import LARGE_INPUT_TOKENS, Call, calls

#: A fair turn sooner than this is taken for this: in the first burst everything is due at once.
LEAST_TURN_S = 1.0


class Request(NamedTuple):
    call: int | None
    at_s: float
    ended_s: float | None
    status: int | None
    input_tokens: int
    output_tokens: int


class Asked(NamedTuple):
    call: int
    at_s: float
    ended_s: float | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One raw file: one contender in one row. Times are seconds since the row began."""

    row: Row
    contender: str
    requests: Sequence[Request]
    asked: Sequence[Asked]
    client_cpu_s: float
    python: str
    versions: Mapping[str, str]
    machine: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """`goodput` is what was served in the row's window, of what the provider refilled in it; `also`, in the second
    window; `whole`, in the whole row, of its first burst and everything it refilled. `refused` are the 429s of the
    whole row, `refused_late` the share of the requests that came in the window. `large_s` is the longest wait of a very
    large call, `turns` the worst ratio of one to its fair turn; `large_open` says that the longest is still waiting.
    None: there was none."""

    goodput: float
    also: float | None
    whole: float
    served: int
    sent: int
    refused: int
    refused_late: float
    overloaded: int
    p50_s: float | None
    p99_s: float | None
    large_s: float | None
    large_open: bool
    turns: float | None
    gave_up: int
    cpu_ms: float | None

    @property
    def refused_share(self) -> float:
        return self.refused / self.sent if self.sent else 0.0


def load(raw: Path) -> list[Result]:
    return [read(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(raw.glob("*/*.json"))]


def read(said: Mapping[str, Any]) -> Result:
    row = dict(said["row"])
    row["shares"] = tuple(tuple(share) for share in row["shares"])
    for name in ("storm", "also"):
        row[name] = tuple(row[name]) if row[name] else None
    return Result(
        row=Row(**row),
        contender=said["contender"],
        requests=[Request(*one) for one in said["requests"]],
        asked=[Asked(*one) for one in said["calls"]],
        client_cpu_s=said["client_cpu_s"],
        python=said["python"],
        versions=said["versions"],
        machine=said["machine"],
    )


def figures(result: Result) -> Figures:
    row, until_s = result.row, result.row.until_s
    came = {one.call: one.at_s for one in reversed(result.requests) if one.status == 200 and one.call is not None}
    waits = sorted(
        came[one.call] - one.at_s for one in result.asked if row.since_s <= came.get(one.call, -1.0) < until_s
    )
    sent = [one for one in result.requests if one.at_s < until_s]
    late = [one.status == 429 for one in sent if one.at_s >= row.since_s]
    large = _large(result, came)
    longest = max(large, default=None)
    return Figures(
        goodput=goodput(result, row.since_s, until_s),
        also=goodput(result, *row.also[1:]) if row.also else None,
        whole=goodput(result, 0.0, until_s, burst=row.tpm / 60 * row.burst_s),
        served=len(came),
        sent=len(sent),
        refused=sum(one.status == 429 for one in sent),
        refused_late=sum(late) / len(late) if late else 0.0,
        overloaded=sum(one.status == 529 for one in sent),
        p50_s=_quantile(waits, 0.5),
        p99_s=_quantile(waits, 0.99),
        large_s=longest.waited_s if longest else None,
        large_open=longest.open if longest else False,
        turns=max((one.turns for one in large), default=None),
        gave_up=sum(one.error is not None for one in result.asked),
        cpu_ms=result.client_cpu_s / len(came) * 1_000 if came else None,
    )


def goodput(result: Result, since_s: float, until_s: float, *, burst: float = 0.0) -> float:
    """Tokens charged for served calls in a window, of what the provider refilled in it, and of `burst`.

    Input is charged as a request comes, output as its answer goes. Above 1 is a burst that was saved before.
    """
    charged = 0
    for one in result.requests:
        if one.status == 200 or one.ended_s is None:
            charged += one.input_tokens * (since_s <= one.at_s < until_s)
            charged += one.output_tokens * (since_s <= (one.ended_s or one.at_s) < until_s)
    return charged / (result.row.could_serve(since_s, until_s) + burst)


class Waited(NamedTuple):
    waited_s: float
    turns: float
    open: bool


def _large(result: Result, came: Mapping[int, float]) -> list[Waited]:
    """The waits of the very large calls that ended in the window or not at all, beside their fair turns; those whose
    turn had not come are left out."""
    row = result.row
    sizes = sizes_of(row.seed, max((one.call for one in result.asked), default=-1) + 1)
    asked = sorted((one for one in result.asked if one.at_s < row.until_s), key=lambda one: one.at_s)
    finishes = fluid_finishes(
        [Arrival(one.at_s, "all", _amount(sizes[one.call])) for one in asked],
        row.rates(),
        capacity=row.tpm / 60 * row.burst_s,
    )
    found = []
    for one, finish_s in zip(asked, finishes, strict=True):
        served_s = came.get(one.call, row.until_s)
        is_open = served_s >= row.until_s
        is_due = not is_open or finish_s < row.until_s
        if sizes[one.call].input_tokens != LARGE_INPUT_TOKENS or not is_due or served_s < row.since_s:
            continue
        waited_s = min(served_s, row.until_s) - one.at_s
        found.append(Waited(waited_s, waited_s / max(finish_s - one.at_s, LEAST_TURN_S), is_open))
    return found


def sizes_of(seed: int, count: int) -> list[Call]:
    return [call for call, _ in zip(calls(seed), range(count), strict=False)]


def _amount(call: Call) -> float:
    return call.input_tokens + call.output_tokens


def _quantile(waits: Sequence[float], share: float) -> float | None:
    return waits[min(int(share * len(waits)), len(waits) - 1)] if waits else None


def served_rate(result: Result, every_s: float) -> list[float]:
    """Tokens a second, charged for served calls, over each stretch of `every_s`."""
    stretches = [0.0] * int(result.row.until_s / every_s)
    for one in result.requests:
        if one.status != 200 or one.ended_s is None:
            continue
        for at_s, tokens in ((one.at_s, one.input_tokens), (one.ended_s, one.output_tokens)):
            if 0 <= at_s < len(stretches) * every_s:
                stretches[int(at_s / every_s)] += tokens / every_s
    return stretches
