"""docs/decisions.md: its commands run and show what the page shows, its example of a line is one."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interlock.runtime.cli.app import app
from interlock.runtime.decisions_eval.labelled import LabelledLines

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def shape(text: str) -> list[str]:
    """The words of the tables' heads and titles."""
    heads = [re.findall(r"[^┃]+", line) for line in text.splitlines() if line.startswith("┃")]
    return [cell.strip() for head in heads for cell in head if cell.strip()]


def test_the_commands_run_and_show_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for library in ("matplotlib", "sparrow_decider"):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    label, evaluate = [shlex.split(line.removeprefix("$ ")) for line in block("console").splitlines()]
    assert (label[0], label[2:]) == ("python", [">", "labelled.jsonl"])
    runpy.run_path(str(ROOT / label[1]), run_name="__main__")
    lines = capsys.readouterr().out.splitlines(keepends=True)
    examples = re.search(r"│ area .*?│ +(\d+) │", block("text"))
    assert examples is not None
    assert len(lines) == pytest.approx(int(examples[1]), rel=0.15)  # Pythons differ in their library
    (tmp_path / "labelled.jsonl").write_text("".join([lines[0], *lines[7::30]]), encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert evaluate[0] == "interlock"
    done = CliRunner().invoke(app, evaluate[1:])
    assert done.exit_code == 0, done.output
    assert shape(done.stdout) == shape(block("text"))
    assert (tmp_path / "reliability.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "fitted.json").read_text(encoding="utf-8"))["temperatures"]


def test_the_line_of_the_page_is_an_example() -> None:
    example = LabelledLines().read(1, json.loads(block("json")))
    assert example.truths == {"team": 0, "urgent": 1, "anger": 1}


def test_every_option_that_the_page_names_is_the_commands() -> None:
    told = CliRunner().invoke(app, ["decisions", "eval", "--help"], env={"COLUMNS": "200"}).stdout
    section = PAGE.partition("## How good, and how sure?")[2].partition("## What it costs")[0]
    assert [name for name in re.findall(r"--[a-z-]+", section) if name not in told] == []
