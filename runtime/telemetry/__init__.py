"""Spans and meters of a Runtime, by OpenTelemetry's conventions for generative AI. Only its API is imported.

    catalogue   every span and meter with its attributes and units; docs/events.md is printed from it
    spans       a run, a job, its waits in the line, each wire request
    harmless    what of it raises changes nothing of the work
    meters      tokens, durations, cost, waits, refusals; the levels and slowdowns when a reader asks
    page        prints docs/events.md: `python -m interlock.runtime.telemetry.page`

Without an SDK all of it costs next to nothing. Texts are in a span only where the deployment keeps them (`keep_text`).
The rest of `runtime` may import it; it reads rows and statistics, and decides nothing.
"""

from .meters import Meters
from .spans import Spans

__all__ = ["Meters", "Spans"]
