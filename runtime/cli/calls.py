"""`interlock calls`: what was called, from the store, as a table or as JSON."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.table import Table

    from ..store.rows import CallRow

T = TypeVar("T")

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def parse_period(text: str) -> timedelta:
    """`30s`, `15m`, `1h`, `2d`, `1w`."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smhdw])", text.strip())
    if found is None:
        raise ConfigurationError(f"{text!r} is no period: write it as 30s, 15m, 1h, 2d or 1w")
    return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])


def show_calls(*, store: str, last: str | None, run: str | None, limit: int, as_json: bool) -> None:
    from ..store.place import Place
    from ..store.reads import calls_in

    since = datetime.now(UTC) - parse_period(last) if last else None
    rows = latest(calls_in(store, since=since, run_id=run, limit=limit + 1), limit, "calls")
    if as_json:
        print(json.dumps([as_object(row) for row in rows], indent=1))
        return
    from .screen import screen

    console = screen()
    if not rows:
        console.print(f"No calls in {Place.of(store).name}" + (f" in the last {last}." if last else "."))
        return
    console.print(table(rows))
    console.print(totals(rows))


def latest(found: list[T], limit: int, what: str) -> list[T]:
    """The last `limit` of one more than that; where there are more, that is said."""
    if len(found) <= limit:
        return found
    print(f"Only the latest {limit:,} {what} are shown; --limit shows more.", file=sys.stderr)
    return found[-limit:]


def as_object(row: CallRow) -> dict[str, Any]:
    """One call as plain JSON. What is unknown is null."""
    record, usage = row.record, row.record.usage
    return {
        "started_at": record.started_at.isoformat(),
        "run": row.run_id,
        "step": row.step_id,
        "job": row.job,
        "workflow": row.workflow,
        "attempt": row.attempt,
        "kind": str(record.kind),
        "model": record.model,
        "provider": record.provider,
        "served_model": record.served_model,
        "request_id": record.request_id,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cache_write_1h_tokens": usage.cache_write_1h_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "estimated": usage.estimated,
        "cost": None if record.cost is None else str(record.cost),
        "currency": record.currency,
        "waited_s": round(row.waited_s, 6),
        "waited": {name: round(seconds, 6) for name, seconds in row.waited.items()},
        "latency_s": round(record.latency_s, 6),
        "outcome": record.outcome,
        "error": record.error,
        "unmetered": record.unmetered,
        "undeclared": record.undeclared,
    }


def table(rows: list[CallRow]) -> Table:
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    shown.add_column("started (UTC)", no_wrap=True, min_width=14)
    for name in ("job", "model"):
        shown.add_column(name, overflow="ellipsis", no_wrap=True, min_width=8)
    for name, width in (("in", 5), ("out", 4), ("cost", 8), ("waited", 6), ("took", 5), ("try", 3)):
        shown.add_column(name, justify="right", no_wrap=True, min_width=width)
    shown.add_column("outcome", overflow="ellipsis", no_wrap=True, min_width=7)
    for row in rows:
        record, usage = row.record, row.record.usage
        shown.add_row(
            record.started_at.astimezone(UTC).strftime("%m-%d %H:%M:%S"),
            row.job,
            record.model,
            _known(usage.total_input_tokens),
            _known(usage.output_tokens),
            "?" if record.cost is None else f"{record.cost:.6f}",
            f"{row.waited_s:.2f}s",
            f"{record.latency_s:.2f}s",
            str(row.attempt),
            record.outcome,
            style=None if record.outcome == "ok" else "red",
        )
    return shown


def totals(rows: list[CallRow]) -> str:
    """One line: how many, how they ended, what they cost."""
    outcomes = Counter(row.record.outcome for row in rows)
    costs: dict[str, Decimal] = {}
    for row in rows:
        if row.record.cost is not None and row.record.currency is not None:
            costs[row.record.currency] = costs.get(row.record.currency, Decimal(0)) + row.record.cost
    unknown = sum(row.record.cost is None for row in rows)
    parts = [f"{len(rows)} calls", ", ".join(f"{count} {name}" for name, count in outcomes.most_common())]
    parts += [f"{amount:.6f} {currency}" for currency, amount in sorted(costs.items())]
    if unknown:
        parts.append(f"{unknown} of unknown cost")
    return "; ".join(parts)


def _known(count: int | None) -> str:
    return "?" if count is None else str(count)
