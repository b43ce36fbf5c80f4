"""A table of calls (CSV or JSON lines) as a workload: each row is `count` calls of one size, nothing after anything."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.catalog.limits import output_limit
from interlock.catalog.spec import ModelSpec
from interlock.catalog.words import Kind
from interlock.errors import ConfigurationError, ContextWindowExceededError, ModelResolutionError

from .workload import PlannedCall, PlannedJob, PlannedLine, Workload

if TYPE_CHECKING:
    from interlock.catalog import Catalog

NEEDED = ("model", "input_tokens")
COLUMNS = (*NEEDED, "max_output_tokens", "output_tokens", "count", "workflow", "priority", "latency_s", "arrival_s")
#: Rows, calls in all of them, and calls where some arrive later: those are simulated one by one.
MOST_ROWS, MOST_CALLS, MOST_ARRIVING = 200_000, 1_000_000_000, 1_000_000
#: Tokens in one call, and seconds: more is a slip.
MOST_TOKENS, MOST_SECONDS = 100_000_000, 30 * 86_400.0
NAMED = 5  # bad rows in one error


class BadRowError(ConfigurationError):
    """A row that is no call. `row` counts the rows of data from 1."""

    code = "bad_row"

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row}: {reason}")
        self.row, self.reason = row, reason


def read_table(path: Path, catalog: Catalog, *, concurrency: int | None = None, limit: int | None = None) -> Workload:
    """Raises ConfigurationError that names the bad rows."""
    lines: list[PlannedLine] = []
    counts: list[int] = []
    bad: list[BadRowError] = []
    left = math.inf if limit is None else limit
    for number, row in _rows(path):
        if number > MOST_ROWS:
            raise ConfigurationError(
                f"{path} has more than {MOST_ROWS:,} rows: write calls of one size as one row, with their `count`"
            )
        try:
            line, count = _line(number, row, catalog)
        except BadRowError as error:
            bad.append(error)
            continue
        count = int(min(count, left))
        if count:
            left -= count
            lines.append(line)
            counts.append(count)
    if bad:
        named = "; ".join(str(error) for error in bad[:NAMED])
        more = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
        raise ConfigurationError(f"{path}: {named}{more}")
    if not lines:
        raise ConfigurationError(f"{path} has no rows: nothing is to be planned")
    workload = Workload(lines=lines, counts=counts, concurrency=concurrency, read=len(lines), what="call")
    _check_size(path, workload)
    return workload


def _check_size(path: Path, workload: Workload) -> None:
    most = MOST_ARRIVING if workload.arrives else MOST_CALLS
    if workload.total > most:
        why = " with arrivals" if workload.arrives else ""
        raise ConfigurationError(f"{path} has {workload.total:,} calls{why}; at most {most:,} can be planned at once")


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any] | BadRowError]]:
    kind = path.suffix.lower()
    if kind not in (".csv", ".jsonl", ".ndjson"):
        raise ConfigurationError(f"{path}: a table of calls is a .csv or a .jsonl file")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _csv_rows(path, file) if kind == ".csv" else _json_rows(file)
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text") from None
    except csv.Error as error:
        raise ConfigurationError(f"{path} cannot be read as CSV: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None


def _csv_rows(path: Path, file: Any) -> Iterator[tuple[int, Mapping[str, Any] | BadRowError]]:
    reader = csv.DictReader(file, skipinitialspace=True)
    names = [name.strip() for name in reader.fieldnames or ()]
    if not names:
        raise ConfigurationError(f"{path} is empty: its first line names the columns ({', '.join(COLUMNS)})")
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise ConfigurationError(f"{path} lacks the column {', '.join(missing)}; there may be {', '.join(COLUMNS)}")
    _check_names(str(path), names)
    reader.fieldnames = names
    for number, row in enumerate(reader, start=1):
        extra = row.pop(None, None)
        if extra:
            yield number, BadRowError(number, f"has {len(extra)} values more than there are columns")
        else:
            yield number, {key: value.strip() for key, value in row.items() if value is not None and value.strip()}


def _json_rows(file: Any) -> Iterator[tuple[int, Mapping[str, Any] | BadRowError]]:
    number = 0
    for text in file:
        if not text.strip():
            continue
        number += 1
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            yield number, BadRowError(number, "is not JSON")
            continue
        if isinstance(row, dict):
            yield number, {key: value for key, value in row.items() if value is not None}
        else:
            yield number, BadRowError(number, "is no JSON object")


def _check_names(whose: str, names: list[str]) -> None:
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        near = get_close_matches(unknown[0], COLUMNS, n=1)
        instead = f"did you mean {near[0]}?" if near else f"there may be {', '.join(COLUMNS)}"
        raise ConfigurationError(f"{whose}: no column {unknown[0]!r} is known: {instead}")


def _line(number: int, row: Mapping[str, Any] | BadRowError, catalog: Catalog) -> tuple[PlannedLine, int]:
    if isinstance(row, BadRowError):
        raise row
    missing = [name for name in NEEDED if name not in row]
    if missing:
        raise BadRowError(number, f"lacks {', '.join(missing)}")
    try:
        _check_names(f"row {number}", list(row))
        entry = catalog.entry(str(row["model"]))
    except (ConfigurationError, ModelResolutionError) as error:
        raise BadRowError(number, str(error).removeprefix(f"row {number}: ")) from None
    input_tokens = _whole(number, row, "input_tokens", most=MOST_TOKENS)
    limit = 0
    if entry.kind is Kind.CHAT:
        if "max_output_tokens" not in row:
            raise BadRowError(number, "lacks max_output_tokens, which a chat call reserves")
        try:
            declared = _whole(number, row, "max_output_tokens", least=1, most=MOST_TOKENS)
            limit, _ = output_limit(entry, declared=declared, input_tokens=input_tokens)
        except ContextWindowExceededError as error:
            raise BadRowError(number, str(error)) from None
    expected = _whole(number, row, "output_tokens", most=MOST_TOKENS) if "output_tokens" in row else None
    if expected is not None and expected > limit:
        raise BadRowError(number, f"expects {expected:,} output tokens, more than its limit of {limit:,}")
    call = PlannedCall(
        entry=entry,
        key=ModelSpec(entry.id, kind=entry.kind),
        input_tokens=input_tokens,
        output_tokens=limit,
        expected_tokens=expected,
        latency_s=_seconds(number, row, "latency_s") if "latency_s" in row else None,
    )
    job = PlannedJob(
        name=f"a call of {entry.id}",
        calls=(call,),
        workflow=str(row.get("workflow", "")),
        priority=_whole(number, row, "priority", least=-1_000_000, most=1_000_000) if "priority" in row else 0,
    )
    arrival_s = _seconds(number, row, "arrival_s") if "arrival_s" in row else 0.0
    count = _whole(number, row, "count", most=MOST_CALLS) if "count" in row else 1
    return PlannedLine(jobs=(job,), arrival_s=arrival_s), count


def _whole(number: int, row: Mapping[str, Any], name: str, *, least: int = 0, most: int) -> int:
    given = row[name]
    try:
        if isinstance(given, bool) or (isinstance(given, float) and not given.is_integer()):
            raise ValueError
        value = int(given)
    except (TypeError, ValueError, OverflowError):
        raise BadRowError(number, f"{name} must be a whole number, not {given!r}") from None
    if not least <= value <= most:
        raise BadRowError(number, f"{name} must be from {least:,} to {most:,}, not {value:,}")
    return value


def _seconds(number: int, row: Mapping[str, Any], name: str) -> float:
    given = row[name]
    try:
        if isinstance(given, bool):
            raise ValueError
        value = float(given)
    except (TypeError, ValueError):
        raise BadRowError(number, f"{name} must be seconds, not {given!r}") from None
    if not 0 <= value <= MOST_SECONDS:  # NaN is not either
        raise BadRowError(number, f"{name} must be from 0 to {MOST_SECONDS:,.0f} seconds, not {given}")
    return value
