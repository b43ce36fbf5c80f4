"""What is told of one request, attribute by attribute: cached input is input, unknown is left out, zero is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from interlock.catalog.usage import Usage
from interlock.catalog.words import Kind
from interlock.clients.record import CallRecord
from interlock.clients.registry import provider_keys
from interlock.runtime.store.rows import CallRow
from interlock.runtime.telemetry import Meters
from interlock.runtime.telemetry.catalogue import PROVIDER_NAMES
from interlock.runtime.telemetry.spans import of_request

RECORD = CallRecord(
    kind=Kind.CHAT, model="entry", provider="anthropic-bedrock-mantle", wire_model_id="wire", served_model="served",
    request_id="r", usage=Usage(input_tokens=5, output_tokens=7, cache_read_tokens=100, cache_write_tokens=20,
                                reasoning_tokens=3),
    cost=Decimal("0.25"), currency="EUR", price_as_of=None, started_at=datetime(2026, 11, 30, tzinfo=UTC),
    latency_s=2.0, first_piece_s=0.5, outcome="ok", error=None, stop_reason="end_turn", unmetered=True,
    undeclared=True, request_hash="h",
)  # fmt: skip


def told(**changes: Any) -> dict[str, Any]:
    row = CallRow(record=replace(RECORD, **changes), attempt=2, workflow="triage")
    return {attribute.name: value for attribute, value in of_request(row).items() if value is not None}


def test_all_that_is_known_is_told() -> None:
    assert told() == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "aws.bedrock", "gen_ai.request.model": "wire",
        "gen_ai.response.model": "served", "interlock.model": "entry", "gen_ai.response.id": "r",
        "gen_ai.response.finish_reasons": ("end_turn",), "gen_ai.response.time_to_first_chunk": 0.5,
        "gen_ai.usage.input_tokens": 125, "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 100, "gen_ai.usage.cache_creation.input_tokens": 20,
        "gen_ai.usage.reasoning.output_tokens": 3, "interlock.attempt": 2, "interlock.cost": 0.25,
        "interlock.currency": "EUR", "interlock.unmetered": True, "interlock.undeclared": True,
    }  # fmt: skip


def test_what_is_unknown_is_left_out_and_zero_is_said() -> None:
    unknown = told(usage=Usage(), cost=None, served_model=None, request_id=None, stop_reason=None, first_piece_s=None,
                   unmetered=False, undeclared=False)  # fmt: skip
    assert unknown.keys() == {
        "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "interlock.model", "interlock.attempt",
    }  # fmt: skip
    free = told(usage=Usage(input_tokens=0, output_tokens=0, cache_read_tokens=0), cost=Decimal(0))
    assert (free["gen_ai.usage.input_tokens"], free["gen_ai.usage.output_tokens"]) == (0, 0)
    assert free["gen_ai.usage.cache_read.input_tokens"] == 0
    assert (free["interlock.cost"], free["interlock.currency"]) == (0.0, "EUR")


def test_every_provider_of_a_known_house_has_its_name() -> None:
    houses = {"anthropic": "anthropic", "bedrock": "aws.bedrock", "gemini": "gcp.gemini", "openai": "openai"}
    for key in provider_keys():
        house = next((name for word, name in reversed(houses.items()) if word in key), None)
        if "compatible" not in key and house is not None:
            bedrock = "bedrock" in key
            assert PROVIDER_NAMES.get(key, key) == ("aws.bedrock" if bedrock else house), key


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    made = InMemoryMetricReader()
    yield made
    made.shutdown()


async def test_the_meters_of_one_request(reader: InMemoryMetricReader) -> None:
    meters = Meters(MeterProvider([reader]), lambda: pytest.fail("nothing of an account is asked here"))
    meters.request(CallRow(record=RECORD, workflow="triage"))
    failed = replace(RECORD, outcome="llm_overloaded", usage=Usage(), cost=Decimal(0), first_piece_s=None)
    meters.request(CallRow(record=failed, workflow="triage"))
    meters.close()
    data = reader.get_metrics_data()
    assert data is not None
    points = {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
    }  # fmt: skip
    tokens = {point.attributes["gen_ai.token.type"]: point.sum for point in points["gen_ai.client.token.usage"]}
    assert tokens == {"input": 125, "output": 7}
    durations = points["gen_ai.client.operation.duration"]
    assert {point.attributes.get("error.type"): point.count for point in durations} == {None: 1, "llm_overloaded": 1}
    (first,) = points["gen_ai.client.operation.time_to_first_chunk"]
    assert (first.sum, first.count) == (0.5, 1)
    (cost,) = points["interlock.cost"]
    assert cost.value == 0.25
    assert cost.attributes == {
        "interlock.currency": "EUR", "gen_ai.provider.name": "aws.bedrock", "gen_ai.request.model": "wire",
        "gen_ai.workflow.name": "triage",
    }  # fmt: skip


async def test_the_meters_of_an_account(reader: InMemoryMetricReader) -> None:
    """A level without bound is no figure, and is left out."""
    known = {"capacity": 10.0, "slowdown": 1.5, "held_for_s": 7.0, "waiting": 3, "rate_limited": 2, "overloaded": 4}
    accounts = (SimpleNamespace(name="a", level=float("inf"), **known),)
    meters = Meters(MeterProvider([reader]), lambda: SimpleNamespace(accounts=accounts))
    data = reader.get_metrics_data()
    assert data is not None
    told = {
        (metric.name, point.attributes.get("error.type")): point.value
        for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
        for point in metric.data.data_points
    }  # fmt: skip
    meters.close()
    assert told == {
        ("interlock.account.capacity", None): 10.0, ("interlock.account.slowdown", None): 1.5,
        ("interlock.account.held", None): 7.0, ("interlock.account.waiting", None): 3,
        ("interlock.account.refusals", "llm_rate_limited"): 2, ("interlock.account.refusals", "llm_overloaded"): 4,
    }  # fmt: skip
