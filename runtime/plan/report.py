"""The forecast in words and tables: the answer first, then what it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .forecast import Forecast, LimitForecast, Spread
from .limits import LINES
from .sizes import ENOUGH, Sizes

if TYPE_CHECKING:
    from .workload import Workload

#: Shares below this are not told: a limit that was touched once holds nothing.
LITTLE = 0.01


# In words.


def duration(seconds: float) -> str:
    """`4.2 s`, `4 min 10 s`, `3 h 5 min`, `2 d 4 h`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for unit, name, part, part_name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // part
            return f"{whole // unit:,} {name} {rest} {part_name}" if rest else f"{whole // unit:,} {name}"
    return f"{whole} s"


def money(amount: float | Decimal, currency: str) -> str:
    """Two digits after the point, more for what is small."""
    value = float(amount)
    digits = 2 if value >= 1 or value == 0 else 4
    return f"{value:,.{digits}f} {currency}"


def answer(forecast: Forecast) -> str:
    """One sentence: how long, how much, and what holds it."""
    time = forecast.finish_s
    parts = [f"Finishes in about {duration(time.p50)}{_range(time)}"]
    costs = [
        f"costs {money(cost.p50, name)}{_money_range(cost, name)}, at most {money(forecast.worst[name], name)}"
        for name, cost in forecast.cost.items()
    ]
    parts.append(" and ".join(costs) or ("what it costs is not known" if forecast.unpriced else "costs nothing"))
    return f"{'; '.join(parts)}; {held_by(forecast)}."


def held_by(forecast: Forecast) -> str:
    """What holds it, and what twice as much of that saves."""
    held = forecast.binding
    if held is None or (held.short < LITTLE and not _saves(forecast, held)):
        return "no limit holds it: it takes as long as its calls do"
    saves = (
        f"twice as much saves {duration(held.saved_s or 0.0)}" if _saves(forecast, held) else "more of it saves nothing"
    )
    if held.limit.field == LINES:
        return f"held by the {held.limit.stated:,.0f} {forecast.what}s under way at a time: {saves}"
    return f"held by {held.limit.words} for {held.short:.0%} of the time: {saves}"


def _saves(forecast: Forecast, held: LimitForecast) -> bool:
    return (held.saved_s or 0.0) > 0.01 * forecast.finish_s.p50


def _range(time: Spread) -> str:
    low, high = duration(time.p10), duration(time.p90)
    return "" if low == high else f" ({low} to {high})"


def _money_range(cost: Spread, currency: str) -> str:
    low, high = money(cost.p10, currency), money(cost.p90, currency)
    return "" if low == high else f" ({low.removesuffix(f' {currency}')} to {high})"


def capped(forecast: Forecast, amount: Decimal, currency: str) -> str | None:
    """What a cost cap does to it; None where it stays under the cap."""
    cost = forecast.cost.get(currency)
    cap = float(amount)
    if cost is None or cost.p90 <= cap:
        return None
    share = min(cap / cost.p50, 1.0) if cost.p50 else 1.0
    if cost.p50 <= cap:
        most = money(cost.p90, currency)
        return f"the cap of {money(amount, currency)} may be reached before the end: one run in ten costs {most}"
    done = int(forecast.total * share)
    return (
        f"the cap of {money(amount, currency)} is reached after about {done:,} of {forecast.total:,} {forecast.what}s, "
        f"in about {duration(forecast.finish_s.p50 * share)}: no {forecast.what} is begun after that"
    )


def assumed(sizes: Sizes, workload: Workload, source: str) -> Iterator[str]:
    """What the sizes rest on, in sentences."""
    recorded: Counter[str] = Counter()
    guessed: Counter[str] = Counter()
    for line, count in zip(workload.lines, workload.counts, strict=True):
        for job in line.jobs:
            for call in job.calls:
                if call.expected_tokens is not None and call.latency_s is not None:
                    continue
                known = sizes.known(job, call)
                if known:
                    recorded[call.entry.id] = max(recorded[call.entry.id], len(known))
                else:
                    guessed[call.entry.id] += count
    for name, known_count in recorded.items():
        few = " (few: the spread shows it)" if known_count < 4 * ENOUGH else ""
        yield f"sizes and times of {name} from {known_count:,} recorded calls in {source}{few}"
    for name, pairs in sizes.pairs.items():
        if len(pairs) >= ENOUGH:
            ratio = sum(used for _, used in pairs) / max(sum(guess for guess, _ in pairs), 1)
            yield f"input of {name} is {ratio:.0%} of the estimate: {len(pairs):,} of these very calls were recorded"
    if guessed:
        taken = sizes.assumptions
        yield (
            f"nothing is recorded of {', '.join(guessed)}: assumed that an answer takes {taken.output_share:.0%} of "
            f"its limit (--output-share), its first token {taken.latency_s:g} s (--latency-s) and the rest "
            f"{taken.tokens_per_s:g} tokens a second (--tokens-per-s), an embedding or a decision {taken.local_s:g} s; "
            "run a few lines first and a plan knows better"
        )


# As tables.


def render(forecast: Forecast, extra: tuple[str, ...] = ()) -> RenderableType:
    """The whole report. `extra` are sentences that belong right after the answer."""
    parts: list[RenderableType] = [Text(answer(forecast), style="bold")]
    parts += [Text(f"{sentence[:1].upper()}{sentence[1:]}.", style="yellow") for sentence in extra]
    parts += [Text(sentence, style="red") for sentence in problems(forecast)]
    parts += [Text(), _table("Limits", LIMITS, limit_rows(forecast))]
    parts += [Text(), _table("Models", MODELS, model_rows(forecast)), Text(), Text(scope(forecast))]
    parts += [Text(f"- {note}", style="dim") for note in forecast.notes]
    return Group(*parts)


def problems(forecast: Forecast) -> Iterator[str]:
    """What would fail."""
    for words, count in sorted(forecast.refused.items(), key=lambda item: -item[1])[:5]:
        yield f"{count:,.0f} refused: {words}"
    yield from forecast.problems


def scope(forecast: Forecast) -> str:
    """How much of it was looked at, and how often."""
    what = (
        f"{forecast.total:,} {forecast.what}s, {forecast.calls:,} calls"
        if forecast.what != "call"
        else f"{forecast.total:,} calls"
    )
    read = f", {forecast.read:,} of them read" if forecast.what == "line" and forecast.read < forecast.total else ""
    cut = ""
    if forecast.simulated < forecast.total:
        cut = f" of {forecast.simulated:,} {forecast.what}s each, from which the rest follows at their pace"
    return f"{what}{read}; {forecast.runs} simulated runs{cut}. Ranges are what 8 runs of 10 are within."


LIMITS = ("limit", "is", "short of it", "twice as much saves")
MODELS = ("model", "calls", "input tokens", "output tokens", "cost")


def limit_rows(forecast: Forecast) -> Iterator[tuple[str, ...]]:
    """One for each limit, under `LIMITS`."""
    for each in forecast.limits:
        short = f"{each.short:.0%}" if each.short >= LITTLE or not each.short else "< 1%"
        yield (
            each.limit.words,
            f"{each.limit.stated:,.10g}",
            "-" if each.limit.field == LINES else short,
            duration(each.saved_s or 0.0) if _saves(forecast, each) else "nothing",
        )


def model_rows(forecast: Forecast) -> Iterator[tuple[str, ...]]:
    """One for each model, under `MODELS`."""
    for each in forecast.models:
        cost = "not known" if each.cost is None or each.currency is None else money(each.cost, each.currency)
        yield (each.model, *(f"{n:,.0f}" for n in (each.calls, each.input_tokens, each.output_tokens)), cost)


def _table(title: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    return table


# As JSON.


def as_json(forecast: Forecast, extra: tuple[str, ...] = ()) -> dict[str, Any]:
    """What `interlock plan --json` prints. Times are seconds, shares are from 0 to 1."""
    held = forecast.binding
    return {
        "answer": answer(forecast),
        "finish_s": _spread(forecast.finish_s),
        "cost": {name: _spread(cost) for name, cost in forecast.cost.items()},
        "worst_cost": {name: float(amount) for name, amount in forecast.worst.items()},
        "unpriced_calls": forecast.unpriced,
        "binding": None if held is None else held.limit.account,
        "limits": [
            {
                "account": each.limit.account,
                "pool": each.limit.pool,
                "field": each.limit.field,
                "stated": each.limit.stated,
                "short": round(each.short, 4),
                "doubled_saves_s": round(each.saved_s or 0.0, 3),
            }
            for each in forecast.limits
        ],
        "models": [
            {
                "model": each.model,
                "pool": each.pool,
                "calls": each.calls,
                "input_tokens": each.input_tokens,
                "output_tokens": each.output_tokens,
                "cost": None if each.cost is None else float(each.cost),
                "currency": each.currency,
            }
            for each in forecast.models
        ],
        "what": forecast.what,
        "total": forecast.total,
        "read": forecast.read,
        "simulated": forecast.simulated,
        "runs": forecast.runs,
        "failed": forecast.failed,
        "refused": dict(forecast.refused),
        "cap": list(extra),
        "problems": list(forecast.problems),
        "notes": list(forecast.notes),
    }


def _spread(value: Spread) -> dict[str, float]:
    return {"p10": round(value.p10, 6), "p50": round(value.p50, 6), "p90": round(value.p90, 6)}
