"""`interlock calls`, `interlock catalog`, `interlock --help`: what they show."""

import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from interlock.runtime.cli.calls import parse_period

HEAVY = {"anthropic", "openai", "sqlalchemy", "numpy", "httpx2", "pydantic", "yaml", "wordllama"}


def test_help_names_the_commands_and_loads_nothing_heavy() -> None:
    code = """
import sys
from interlock.runtime.cli import main
try:
    main()
except SystemExit:
    print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    for command in ("demo", "run", "calls", "catalog"):
        assert f" {command} " in done.stdout
    assert set(done.stderr.split()) & HEAVY == set()


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("30s", timedelta(seconds=30)),
        ("15m", timedelta(minutes=15)),
        ("1.5h", timedelta(minutes=90)),
        (" 2d ", timedelta(days=2)),
        ("1w", timedelta(weeks=1)),
    ],
)
def test_a_period_is_a_number_and_a_unit(text: str, period: timedelta) -> None:
    assert parse_period(text) == period


def test_calls_are_shown_with_what_they_cost_and_how_they_ended(folder: Any) -> None:
    folder.lines({"text": "Tea is a drink."}, {"text": "Milk is white."})
    assert folder.run("triage").exit_code == 0

    (first, second) = json.loads(folder.call("calls", "--json").stdout)
    assert first["model"] == "simulated-small"
    assert first["outcome"] == second["outcome"] == "ok"
    assert first["input_tokens"] > 20
    assert float(first["cost"]) > 0
    assert (first["attempt"], first["job"], first["currency"]) == (1, "LLMCall", "USD")

    assert [call["run"] for call in json.loads(folder.call("calls", "--json", "--run", second["run"]).stdout)] == [
        second["run"]
    ]
    assert len(json.loads(folder.call("calls", "--json", "--limit", "1").stdout)) == 1
    table = folder.call("calls", "--last", "1h").stdout
    assert table.count("LLMCall") == 2
    assert "2 calls; 2 ok; 0.000" in table


def test_a_sound_catalog_is_counted(folder: Any) -> None:
    done = folder.call("catalog", "check", "catalog.yaml")
    assert done.exit_code == 0
    assert done.stdout == "catalog.yaml: sound; models: 1 chat; pools: 0; pins: 1\n"


def test_the_shipped_catalog_is_shown(folder: Any) -> None:
    done = folder.call("catalog", "show")
    assert done.exit_code == 0
    for name in ("wordllama", "sparrow", "claude-haiku-direct", "anthropic-direct"):
        assert name in done.stdout


def test_one_entry_is_shown_in_full(folder: Any) -> None:
    shown = folder.call("catalog", "show", "simulated-small", "--catalog", "catalog.yaml").stdout
    assert "id: simulated-small\ngrade: SMALL\n" in shown
    assert "input: '1.00'" in shown or "input: 1.00" in shown
