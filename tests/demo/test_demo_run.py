"""The whole demo on a few entries: both ways do the same work, and the figures come in the promised form."""

import io
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from interlock.catalog import Catalog
from interlock.clients.simulator import PublishedLimits, Step
from interlock.errors import ConfigurationError
from interlock.runtime.demo import provider as demo_provider
from interlock.runtime.demo.baseline import run_the_usual_way
from interlock.runtime.demo.corpus import read_corpus
from interlock.runtime.demo.figures import DemoReport
from interlock.runtime.demo.library import open_library
from interlock.runtime.demo.main import DemoOptions, run_demo
from interlock.runtime.demo.provider import LIMITS, MODEL, catalog_text, served, simulated_provider
from interlock.runtime.demo.report import render

ROOMY = PublishedLimits(rpm=60_000, input_tpm=60_000_000, output_tpm=60_000_000, burst_s=60)
ENTRIES = 12


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_provider, "latency_s", lambda request: 0.0)


def rows(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        found = connection.execute("SELECT name, area, title, summary, length(vector) FROM entries ORDER BY name")
        keywords = connection.execute("SELECT entry, keyword FROM keywords ORDER BY entry, keyword")
        everything = [*found.fetchall(), *keywords.fetchall()]
    connection.close()
    return everything


async def run_small(folder: Path) -> tuple[DemoReport, str]:
    screen = io.StringIO()
    console = Console(file=screen, width=120)
    report = await run_demo(DemoOptions(entries=ENTRIES, limits=ROOMY, keep=folder, workers=3), console)
    console.print(render(report))
    return report, screen.getvalue()


async def test_the_demo_on_a_few_entries(tmp_path: Path) -> None:
    report, screen = await run_small(tmp_path / "kept")

    figures = json.loads(json.dumps(report.as_json()))
    assert set(figures) == {
        *("jobs", "failed", "rate_limited", "goodput", "db_connection_s", "db_work_s", "wall_s", "cost"),
        *("search", "baseline"),
    }
    assert set(figures["baseline"]) == {"rate_limited", "goodput", "db_connection_s", "wall_s"}
    assert (figures["jobs"], figures["failed"], figures["rate_limited"]) == (ENTRIES, 0, 0)
    assert figures["cost"] > 0
    assert 0 < figures["db_work_s"] <= figures["db_connection_s"]
    assert figures["search"][0]["module"] == "argparse"

    assert "simulated provider on this machine: no key is needed" in " ".join(screen.split())
    assert "refused with a 429" in screen

    stored = rows(tmp_path / "kept" / "library.db")
    assert len([row for row in stored if len(row) == 5]) == ENTRIES
    assert {row[4] for row in stored if len(row) == 5} == {1024 * 4}
    usual = rows(tmp_path / "kept" / "usual-way.db")
    as_asked = [row[:4] for row in usual if len(row) == 5]
    assert as_asked == [row[:4] for row in stored if len(row) == 5]


async def test_the_usual_way_sleeps_and_sends_again(tmp_path: Path) -> None:
    with simulated_provider(ROOMY).in_thread() as provider:
        provider.script(Step.rate_limited(0), Step.rate_limited(0))
        side = await run_the_usual_way(read_corpus(2), provider, tmp_path, model=MODEL, served=served(ROOMY), workers=1)
    assert side.requests == 4
    assert side.done == 2
    assert side.db_connection_s > side.db_work_s > 0


def test_the_demos_catalog_publishes_what_the_provider_serves() -> None:
    catalog = Catalog.load(catalog_text("http://127.0.0.1:1"), file="the demo's catalog")
    _, limits = catalog.limits_of(catalog.entry(MODEL))
    assert (limits.rpm, limits.input_tpm, limits.output_tpm) == (LIMITS.rpm, LIMITS.input_tpm, LIMITS.output_tpm)
    assert limits.burst_s == LIMITS.burst_s, "the whole burst is taken"
    assert served(LIMITS)["requests"] == (LIMITS.rpm / 60 * LIMITS.burst_s, LIMITS.rpm / 60)


async def test_a_folder_with_databases_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "library.db").write_bytes(b"")
    with pytest.raises(ConfigurationError, match="holds databases already"):
        await run_demo(DemoOptions(entries=1, limits=ROOMY, keep=tmp_path), Console(file=io.StringIO()))


async def test_the_usual_way_is_not_measured_on_a_real_provider(tmp_path: Path) -> None:
    options = DemoOptions(catalog=tmp_path / "catalog.yaml", baseline=True)
    with pytest.raises(ConfigurationError, match="on the simulated provider only"):
        await run_demo(options, Console(file=io.StringIO()))


async def test_the_demo_says_what_it_needs_before_it_says_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ConfigurationError, match=r"needs uvicorn, wordllama: pip install 'interlock\[demo\]'"):
        await run_small(tmp_path)


async def test_who_writes_waits_for_the_others_on_a_busy_machine_too(tmp_path: Path) -> None:
    engine = await open_library(tmp_path / "library.db", connections=1)
    async with engine.connect() as connection:
        waits_ms = (await connection.exec_driver_sql("PRAGMA busy_timeout")).scalar_one()
    await engine.dispose()
    assert waits_ms >= 60_000
