"""Interlock: a Runtime over a catalog that states the published limits, its store and everything else as it comes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from interlock import Runtime, RuntimeSettings
from interlock.clients.registry import provider_class

from ..child import Ask, Terms
from ..workload import MAX_OUTPUT_TOKENS, Call

CATALOG = """\
models:
  - id: simulated
    grade: SMALL
    provider: anthropic-direct
    wire_model_id: simulated
    base_url: "{base_url}"
    context_window: 200000
    max_output_tokens: 8192
    limits: {{rpm: {rpm:f}, tpm: {tpm:f}, burst_s: {burst_s:f}}}
    accounting: {{output: expected, cache_reads: free}}
    prices: {{currency: USD, per: 1000000, input: 1.00, output: 5.00, as_of: 2026-11-30, source: made up}}
providers:
  anthropic-direct: {{credential: anthropic-api-key}}
pins: {{SMALL: [simulated]}}
"""


@asynccontextmanager
async def opened(terms: Terms) -> AsyncIterator[Ask]:
    os.environ["ANTHROPIC_API_KEY"] = "simulated-key"
    provider_class("anthropic-direct")  # everybody's SDK is imported before the row begins
    catalog = Path(terms.folder) / "catalog.yaml"
    catalog.write_text(
        CATALOG.format(base_url=terms.base_url, rpm=terms.rpm, tpm=terms.tpm, burst_s=terms.burst_s), encoding="utf-8"
    )
    store = f"sqlite:///{terms.folder}/interlock.db"
    async with Runtime(RuntimeSettings(catalog=catalog, store=store)) as runtime:
        llm = runtime.llm("simulated", max_output_tokens=MAX_OUTPUT_TOKENS)

        async def ask(call: Call) -> None:
            await llm.single_response(call.text)

        yield ask
