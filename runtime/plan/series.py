"""What the pictures of a forecast show: the levels that matter over time, each in words and with its unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .forecast import Forecast, LimitForecast
from .limits import LINES
from .report import LITTLE, duration

#: Levels in one picture; the rest were never in the way.
MOST_SHOWN = 4
UNITS = {
    "rpm": "requests left",
    "rpd": "requests left today",
    "tpm": "tokens left",
    "tpd": "tokens left today",
    "input_tpm": "input tokens left",
    "output_tpm": "output tokens left",
    "max_concurrent": "free slots",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line over `at_s`: `capacity` is the highest it can be (None: it has none)."""

    title: str
    unit: str
    values: tuple[float, ...]
    capacity: float | None
    binding: bool = False


def times(forecast: Forecast) -> tuple[float, ...]:
    return tuple(sample.at_s for sample in forecast.samples)


def series(forecast: Forecast) -> Iterator[Series]:
    """The levels that somebody was short of, the one that holds it first; then the jobs that wait."""
    held = forecast.binding
    shown = [each for each in forecast.limits if each.limit.field != LINES and each.short >= LITTLE]
    shown.sort(key=lambda each: (each is not held, -each.short))
    if not shown:
        shown = [each for each in forecast.limits if each.limit.field != LINES][:2]
    for each in shown[:MOST_SHOWN]:
        account = each.limit.account
        yield Series(
            title=_title(each),
            unit=UNITS.get(each.limit.field, "left"),
            values=tuple(sample.levels.get(account, each.limit.capacity) for sample in forecast.samples),
            capacity=each.limit.capacity,
            binding=each is held,
        )
    waiting = tuple(float(sample.waiting) for sample in forecast.samples)
    yield Series(title="jobs in the line", unit="jobs waiting", values=waiting, capacity=None)


def _title(each: LimitForecast) -> str:
    limit = each.limit
    per = {"rpd": " a day", "tpd": " a day", "max_concurrent": ""}.get(limit.field, " a minute")
    saves = f", twice as much saves {duration(each.saved_s)}" if each.saved_s and each.saved_s > 0.05 else ""
    return f"{limit.words} ({limit.stated:,.10g}{per}): short for {each.short:.0%} of the time{saves}"


def scale(forecast: Forecast) -> tuple[float, str]:
    """Seconds in the unit the time axis is in, and its name."""
    end = forecast.samples[-1].at_s if forecast.samples else 0.0
    for unit, name in ((2 * 86_400, "days"), (2 * 3_600, "hours"), (180, "minutes")):
        if end > unit:
            return {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0}[name], name
    return 1.0, "seconds"


def subtitle(forecast: Forecast) -> str:
    """Which run is shown."""
    cut = (
        f" of {forecast.simulated:,} of its {forecast.total:,} {forecast.what}s"
        if forecast.simulated < forecast.total
        else ""
    )
    return f"One simulated run{cut}"
