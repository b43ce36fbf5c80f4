"""docs/workers.md: its commands print what the page shows, and its options are theirs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from interlock.runtime.cli.app import app
from interlock.runtime.worker import WorkerSettings

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "workers.md").read_text(encoding="utf-8")


def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    for name in ("triage.py", "tickets.jsonl", "simulated.yaml"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    found = re.search(r"^```\n(\$ .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    for part in found[1].split("$ ")[1:]:
        command, _, shown = part.partition("\n")
        program, *arguments = command.split()
        done = subprocess.run(
            [Path(sys.executable).with_name(program), *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, shown)


@pytest.mark.parametrize("name", ["worker", "submit"])
def test_every_option_is_on_the_page_and_no_other(name: str) -> None:
    rows = re.search(rf"^\| `interlock {name}.*?(?=^$)", PAGE, re.MULTILINE | re.DOTALL)
    assert rows is not None
    told = set(re.findall(r"`(--[a-z-]+)", rows[0]))
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    assert told == {option for each in command.params for option in each.opts if option.startswith("--")} - {"--help"}


def test_the_defaults_are_the_workers() -> None:
    settings = WorkerSettings()
    assert f"`--concurrency {settings.concurrency}`" in PAGE
    assert f"`--drain-s {settings.drain_s:g}`" in PAGE
