"""The demo's last page: both ways side by side, and what the search found."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from .figures import DemoReport, Side
from .work import QUESTION


def render(report: DemoReport) -> RenderableType:
    parts: list[RenderableType] = [comparison(report), Text(), found(report), Text(), summary(report)]
    if report.errors:
        parts.append(Text("; ".join(f"{code}: {count}" for code, count in report.errors.items()), style="red"))
    return Group(*parts)


def comparison(report: DemoReport) -> Table:
    table = Table(title="The same work on the same provider", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("Interlock", justify="right", style="green")
    if report.baseline is not None:
        table.add_column("the usual way", justify="right")
    sides = [side for side in (report.interlock, report.baseline) if side is not None]
    for name, cells in ROWS.items():
        table.add_row(name, *(cells(side) for side in sides))
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


ROWS: dict[str, Callable[[Side], str]] = {
    "entries done": lambda side: _count(side),
    "requests sent": lambda side: f"{side.requests}",
    "refused with a 429": lambda side: f"{side.rate_limited}",
    "goodput, of the provider's limit": lambda side: _share(side.goodput),
    "wall time": lambda side: f"{side.wall_s:.1f} s",
    "database connections held for": lambda side: f"{side.db_connection_s:.2f} s",
    "of which for statements and commits": lambda side: f"{side.db_work_s:.2f} s",
}


def _count(side: Side) -> str:
    return f"{side.done}" if not side.failed else f"{side.done} ({side.failed} failed)"


def found(report: DemoReport) -> Table:
    table = Table(title=f"Search in what was stored: {QUESTION!r}", title_justify="left", title_style="bold")
    table.add_column("module")
    table.add_column("entry")
    table.add_column("title")
    table.add_column("cosine", justify="right")
    for row in report.search:
        table.add_row(row.module, row.name, row.title, f"{row.score:.3f}")
    return table


def summary(report: DemoReport) -> Text:
    cost = f"{report.cost:.4f} {report.currency}"
    if report.baseline is None or not report.interlock.db_connection_s:
        return Text(f"Cost: {cost}.")
    times = report.baseline.db_connection_s / report.interlock.db_connection_s
    return Text(
        f"Cost: {cost}. The usual way was refused {report.baseline.rate_limited} times and held its connections "
        f"{times:.0f} times as long."
    )


def show(report: DemoReport, console: Console) -> None:
    console.print(render(report))
