"""A catalog with one model on one pool, and shorthands for lines of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interlock.catalog import Catalog
from interlock.runtime.plan.workload import PlannedCall, PlannedJob, PlannedLine, Workload

CATALOG = """\
models:
  - id: small
    grade: SMALL
    provider: simulated
    wire_model_id: small
    context_window: 100000
    max_output_tokens: 8000
    limits: {{{limits}}}
    accounting: {{output: {output}}}
    prices: {{currency: USD, per: 1000000, input: 1.00, output: 10.00}}
  - id: embedder
    kind: embeddings
    provider: wordllama
    wire_model_id: l2_supercat_256
    dimensions: 256
    prices: {{input: 0}}
  - id: decider
    kind: decision
    provider: sparrow
    wire_model_id: sparrow-decider
    context_window: 512
    prices: {{input: 0}}
pins: {{SMALL: [small], embeddings: embedder, decision: decider}}
"""

MakeCatalog = Callable[..., Catalog]


@pytest.fixture
def make_catalog() -> MakeCatalog:
    """`make_catalog("tpm: 6000")`."""

    def make(limits: str = "", *, output: str = "limit") -> Catalog:
        return Catalog.load(CATALOG.format(limits=limits, output=output), file="the test's catalog")

    return make


def call_of(catalog: Catalog, *, into: int = 80, out: int = 20, **settings: Any) -> PlannedCall:
    """A call whose answer takes its whole limit, after 2 s."""
    settings = {"expected_tokens": out, "latency_s": 2.0, **settings}
    return PlannedCall(entry=catalog.entry("small"), key="small", input_tokens=into, output_tokens=out, **settings)


def lines_of(call: PlannedCall, count: int, **settings: Any) -> Workload:
    job = PlannedJob(name="a call", calls=(call,))
    return Workload(lines=[PlannedLine(jobs=(job,))], counts=[count], **settings)
