"""docs/journal.md and docs/store.md: their programs and commands do, and print, what the pages show."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from interlock.runtime.cli.app import app
from interlock.runtime.journal.protocol import RunStatus, StepStatus
from interlock.runtime.settings import RuntimeSettings
from interlock.runtime.store import link, opening, sure, writer
from interlock.runtime.submitted import STORE_PATIENCE_S

ROOT = Path(__file__).parent.parent.parent
JOURNAL = (ROOT / "docs" / "journal.md").read_text(encoding="utf-8")
STORE = (ROOT / "docs" / "store.md").read_text(encoding="utf-8")

#: What docs/store.md's run is one of: its second step fails until there is a file `room`.
FAILING = """
from pathlib import Path

from interlock import LLMCall, PipelineContext, pipeline


def saved(text: str) -> str:
    if not Path("room").exists():
        raise ValueError("the disk is full")
    return f"saved: {text[:20]}"


@pipeline
async def triage(ctx: PipelineContext, text: str) -> str:
    answer = await ctx.run(LLMCall(text, max_output_tokens=100), key="ask")
    return await ctx.step(saved, answer.text)
"""

#: `python report.py crash; python report.py`, and what both of them import is imported once.
TWICE = """
import os, runpy, sys
import interlock.runtime.runtime, interlock.runtime.store.opening, anthropic, alembic.command
if os.fork() == 0:
    sys.argv = ["report.py", "crash"]
    runpy.run_path("report.py")
print("crashed:", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
sys.argv = ["report.py"]
runpy.run_path("report.py")
"""


def block(page: str, kind: str, number: int = 0) -> str:
    found = re.findall(rf"^```{kind}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(found[number])


@pytest.mark.processes
def test_the_report_that_was_cut_off_goes_on_and_prints_what_the_page_shows(tmp_path: Path) -> None:
    (tmp_path / "report.py").write_text(block(JOURNAL, "python"))
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "simulated.yaml", tmp_path / "examples")

    told = subprocess.run([sys.executable, "-c", TWICE], cwd=tmp_path, capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (0, "crashed: 137\n" + block(JOURNAL, "text")), told.stderr


def test_the_commands_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "path", [*sys.path])
    shutil.copy(ROOT / "examples" / "simulated.yaml", tmp_path / "catalog.yaml")
    (tmp_path / "work.py").write_text(FAILING)
    (tmp_path / "in.jsonl").write_text('{"text": "The printer is on fire."}\n')
    _interlock("run work.py:triage --input in.jsonl --output out.jsonl --catalog catalog.yaml")
    (tmp_path / "room").touch()
    shown = re.search(r"^```\n(\$ interlock runs list\n.*?)^```$", STORE, re.MULTILINE | re.DOTALL)
    assert shown is not None
    (of_the_page,) = set(re.findall(r"triage-[0-9a-f]{16}", shown[1]))
    (run,) = set(re.findall(r"triage-[0-9a-f]{16}", _interlock("runs list")))
    for part in shown[1].split("$ interlock ")[1:]:
        command, _, printed = part.partition("\n")
        assert _timeless(_interlock(command.replace(of_the_page, run))) == _timeless(printed.replace(of_the_page, run))


def _interlock(command: str) -> str:
    return CliRunner().invoke(app, command.split()).stdout


def _timeless(text: str) -> str:
    """Without moments and durations, and as wide as may be."""
    text = re.sub(r"\d\d-\d\d \d\d:\d\d:\d\d", "MOMENT", re.sub(r"\d+\.\d ?s\b", "TIME", text))
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def test_every_command_and_option_of_the_table_is_there() -> None:
    for group, name, words in re.findall(r"^\| `interlock (runs|store) (\w+)([^`]*)`", STORE, re.MULTILINE):
        command = get_command(app).commands[group].commands[name]  # type: ignore[attr-defined]
        options = {option for each in command.params for option in each.opts}
        assert set(re.findall(r"--[a-z-]+", words)) <= options, name
        assert "--store" in options
    told = set(re.findall(r"^\| `interlock runs (\w+)", STORE, re.MULTILINE))
    assert told == set(get_command(app).commands["runs"].commands)  # type: ignore[attr-defined]


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    told = " ".join(STORE.split())
    assert RuntimeSettings().store == "sqlite:///interlock.db"
    assert f'store="{RuntimeSettings().store}") # the default' in told
    assert f"it is noticed after {link.SHORT_LOCK_TIMEOUT_S:g} s" in told
    assert f"not heard of for {opening.TTL_S:g} s is dead" in told
    assert f"more than {writer.MOST_QUEUED:,} rows wait" in told
    assert f"waits {STORE_PATIENCE_S:g} s for the store and is let go" in told
    assert f"closed waits {sure.CLOSING_PATIENCE_S:g} s for the store" in told


def test_every_status_of_a_step_and_of_a_run_is_on_the_page() -> None:
    steps, runs = (set(re.findall(r"^\| (\w+)", part, re.MULTILINE)) for part in JOURNAL.split("And a run as a whole"))
    assert {str(status) for status in StepStatus} <= steps
    assert {str(status) for status in RunStatus} - {"queued", "cancelled"} <= runs
