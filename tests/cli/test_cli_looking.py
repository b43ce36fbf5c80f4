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
    for what, command in (("calls", ("calls",)), ("runs", ("runs", "list"))):
        cut = folder.call(*command, "--json", "--limit", "1")
        assert json.loads(cut.stdout) == json.loads(folder.call(*command, "--json").stdout)[-1:]
        assert cut.stderr == f"Only the latest 1 {what} are shown; --limit shows more.\n"
        assert folder.call(*command, "--limit", "2").stderr == ""
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


def test_what_can_be_called_is_shown_and_what_would_help(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder.path))
    rows = {line.split()[0]: line for line in folder.call("catalog", "show").stdout.splitlines()}
    assert " yes " in rows["wordllama"]
    assert "no: set ANTHROPIC_API_KEY" in rows["claude-haiku-direct"]
    assert "no: set AWS_REGION" in rows["claude-haiku-bedrock"]
    assert "no: set AWS_REGION" in rows["titan-embedding"]
    shown = folder.call("catalog", "show", "claude-haiku-direct").stdout
    assert "# cannot be called now: credential anthropic-api-key is not set" in shown


def test_a_catalog_is_warned_about_what_is_allowed_and_likely_a_slip(folder: Any) -> None:
    text = (
        (folder.path / "catalog.yaml").read_text(encoding="utf-8").replace("provider: simulated", "provider: simulatd")
    )
    tight = text.replace("    structured:", "    limits: {input_tpm: 12000, rpm: 60, burst_s: 1}\n    structured:")
    (folder.path / "tight.yaml").write_text(tight, encoding="utf-8")
    done = folder.call("catalog", "check", "tight.yaml")
    assert done.exit_code == 0
    sound, provider, burst = done.stdout.splitlines()
    assert sound.startswith("tight.yaml: sound; ")
    assert provider == "warning: provider simulatd cannot be called (did you mean simulated?): simulated-small"
    assert "holds at most 200 input tokens at once (12,000 a minute x burst_s 1)" in burst


def test_a_call_that_never_fits_names_the_burst(folder: Any) -> None:
    text = (folder.path / "catalog.yaml").read_text(encoding="utf-8")
    tight = text.replace("    structured:", "    limits: {input_tpm: 12000, burst_s: 1}\n    structured:")
    (folder.path / "tight.yaml").write_text(tight, encoding="utf-8")
    folder.lines({"text": "tea " * 500})
    done = folder.run("triage", "--catalog", "tight.yaml")
    assert done.exit_code == 1
    assert "holds at most 200 (12,000 a minute x burst_s 1)" in done.stderr
    assert "raise the limit or its burst_s" in done.stderr
