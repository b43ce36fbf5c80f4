"""The results as Markdown: a table a row, and below them what each contender was told and what it cannot say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from .contenders import CONTENDERS
from .figures import Figures, Result, figures
from .rows import ROWS
from .workload import LARGE_EVERY, LARGE_INPUT_TOKENS

BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
COMMAND = "python -m benchmarks.admission.peers --again --page docs/benchmarks.md --pictures docs/pictures"


def table(results: Sequence[Result]) -> str:
    """Every row that was run, in the order of the rows; contenders in theirs."""
    order = {name: place for place, name in enumerate(CONTENDERS)}
    parts = []
    for name in ROWS:
        found = sorted((one for one in results if one.row.name == name), key=lambda one: order[one.contender])
        if found:
            parts.append(_section(found))
    return "\n\n".join([*parts, _notes(results)]) if parts else "nothing has been run yet"


def _section(results: Sequence[Result]) -> str:
    rows = [_cells(result) for result in results]
    columns = list(rows[0])
    lines = [f"### {results[0].row.title}", "", _line(columns), _line(["---", *["---:"] * (len(columns) - 1)])]
    lines += [_line(list(cells.values())) for cells in rows]
    return "\n".join([*lines, "", _machine(results)])


def _cells(result: Result) -> dict[str, str]:
    """A line of the table, by column. Where the provider changes on the way there is no fair turn to speak of: who
    comes back slowly leaves so much unused that everything would be due at once."""
    found, contender = figures(result), CONTENDERS[result.contender]
    name = f"**{contender.title}**" if contender.name == "interlock" else contender.title
    also = result.row.also
    cells = {
        "": f"{name}{_mark(contender.name)}",
        "goodput": f"{found.goodput:.2f}",
        **({also[0]: f"{found.also:.2f}"} if also else {}),
        "whole row": f"{found.whole:.2f}",
        "429s": f"{found.refused:,}",
        "of its requests": f"{found.refused_share:.1%}",
        "in the window": f"{found.refused_late:.1%}",
        "wait p50": _seconds(found.p50_s),
        "wait p99": _seconds(found.p99_s),
        "longest wait of a large call": _large(found),
        "in fair turns": "-" if found.turns is None else f"{found.turns:.2f}",
        "given up": f"{found.gave_up:,}",
        "CPU a call": "-" if found.cpu_ms is None else f"{found.cpu_ms:.1f} ms",
    }
    return cells if also is None else {name: cell for name, cell in cells.items() if name != "in fair turns"}


def _large(found: Figures) -> str:
    return f"{'over ' if found.large_open else ''}{_seconds(found.large_s)}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"


def _mark(name: str) -> str:
    marked = [one.name for one in CONTENDERS.values() if one.cannot]
    return f" ({marked.index(name) + 1})" if name in marked else ""


def _machine(results: Sequence[Result]) -> str:
    first = results[0].row
    heats = {tuple(one.machine["beside"]): one.machine for one in results}
    loads = ", ".join(f"{median(one['loads'] or [0.0]):.1f}" for one in heats.values())
    busy = ", ".join(f"{one['busy']:.0%}" for one in heats.values())
    ours = ", ".join(f"{one['ours_cores']:.2f}" for one in heats.values())
    nice = f" (at nice {first_machine['nice']})" if (first_machine := results[0].machine).get("nice") else ""
    seconds = f"Goodput and waits from second {first.since_s:.0f} to {first.until_s:.0f}."
    dates = sorted({one.machine["date"] for one in results})
    return (
        f"{seconds} Run {dates[0]} UTC, {results[0].machine['cpus']} CPUs; load average {loads}; all processes of the "
        f"benchmark{nice} used {ours} of a core; the CPUs were {busy} busy with these and everything else."
    )


def _notes(results: Sequence[Result]) -> str:
    ran = {one.contender: one for one in results}
    row = results[0].row
    versions = [f"{CONTENDERS[name].package} {ran[name].versions[CONTENDERS[name].package]}" for name in ran]
    versions += [f"anthropic {one.versions['anthropic']}" for one in ran.values() if "anthropic" in one.versions][:1]
    versions.append(f"Python {results[0].python}")
    told = [f"| {CONTENDERS[name].title} | {CONTENDERS[name].limits} | {CONTENDERS[name].retries} |" for name in ran]
    cannot = [one for one in CONTENDERS.values() if one.cannot]
    return "\n".join(
        [
            f"Published: {row.rpm:,.0f} requests and {row.tpm:,.0f} tokens a minute, {row.burst_s:.0f} s of it at "
            f"once; the provider says so whatever it serves. One call in {LARGE_EVERY} has {LARGE_INPUT_TOKENS:,} "
            "input tokens, the others 50 to 3,000; answers take 0.6 to 1.4 s.",
            "",
            f"Versions: {', '.join(dict.fromkeys(versions))}. Command: `{COMMAND}`.",
            "",
            "| | limits it is told | who retries |",
            "| --- | --- | --- |",
            *told,
            "",
            *(f"({number}) {one.title}: {one.cannot}." for number, one in enumerate(cannot, start=1)),
        ]
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def into_page(page: Path, text: str) -> None:
    """Put the table between its marks. ValueError: the page has none."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no {BEGIN} ... {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
