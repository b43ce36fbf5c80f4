"""The README is a promise: its Python runs as shown, its commands exist, its output is a real one."""

import re
import shlex
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from interlock.catalog import Catalog

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_the_python_runs_as_shown(checkout: Path, run: Any, number: int) -> None:
    done = run([sys.executable, "-c", blocks("python")[number]], checkout)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_there_is_python_to_run() -> None:
    assert len(blocks("python")) >= 3


def test_the_commands_run_as_shown(checkout: Path, run: Any) -> None:
    lines = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines() if line[:2] == "$ "]
    assert len(lines) >= 2
    for line in lines:
        name, *words = shlex.split(line)
        assert name == "interlock"
        done = run([sys.executable, "-c", "from interlock.runtime.cli import main; main()", *words], checkout)
        assert done.returncode == 0, done.stderr
    for output in ("triaged.jsonl", "answered.jsonl"):
        assert len((checkout / output).read_text(encoding="utf-8").splitlines()) == 12
    with closing(sqlite3.connect(checkout / "tickets.db")) as connection:
        assert connection.execute("SELECT count(*) FROM answers").fetchone() == (12,)


def test_the_catalog_shown_is_sound() -> None:
    (text,) = blocks("yaml")
    assert list(Catalog.load(text, file="README.md").entries) == ["haiku"]


def test_the_two_commands_are_there() -> None:
    assert re.findall(r"^```\n(make \w+)\n```$", README, re.MULTILINE) == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in ("demo", "test", "check", "bench"))


def test_every_file_linked_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
