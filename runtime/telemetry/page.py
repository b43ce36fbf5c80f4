"""Prints docs/events.md: every span and meter, from the catalogue that the code emits by."""

from __future__ import annotations

from collections.abc import Iterable

from .catalogue import METERS, SPANS, Attribute

HEAD = """\
# Spans and meters

A Runtime emits what OpenTelemetry collects: spans of runs, jobs, waits and requests, and meters of tokens, cost, waits
and levels. It imports OpenTelemetry's API alone; without an SDK nothing is kept and nothing is sent. Names that begin
with `gen_ai` follow OpenTelemetry's semantic conventions for generative AI.

```python
from opentelemetry import metrics, trace

trace.set_tracer_provider(...)  # or RuntimeSettings(tracer_provider=..., meter_provider=...)
metrics.set_meter_provider(...)
```

No prompt and no answer is in any of it, unless the deployment keeps texts (`RuntimeSettings(keep_text=True)`): then a
request's span has its answer, without secrets.

This page is printed by `python -m interlock.runtime.telemetry.page`.
"""


def page() -> str:
    """The page, as Markdown."""
    parts = [HEAD, "## Spans\n"]
    for span in SPANS:
        parts += [f"### `{span.name}`\n", f"{span.kind}. Covers {span.covers}.\n", _table(span.attributes)]
    parts.append("## Meters\n")
    for meter in METERS:
        parts += [
            f"### `{meter.name}`\n",
            f"{meter.instrument.capitalize()}, unit `{meter.unit}`: {meter.counts}.\n",
            _table(meter.attributes),
        ]
    return "\n".join(parts)


def _table(attributes: Iterable[Attribute]) -> str:
    rows = ["| attribute | | there if |", "| --- | --- | --- |"]
    rows += [f"| `{each.name}` | {each.means} | {each.when or 'always'} |" for each in attributes]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(page(), end="")
