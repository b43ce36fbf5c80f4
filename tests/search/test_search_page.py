"""docs/search.md: its program prints what the page shows, and its table of options is the command's."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from interlock.runtime import search
from interlock.runtime.cli.app import app

PAGE = (Path(__file__).parent.parent.parent / "docs" / "search.md").read_text(encoding="utf-8")


def test_the_program_prints_what_the_page_shows(tmp_path: Path) -> None:
    program = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0]
    shown = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0]
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == shown


def test_the_commands_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, language in (("docs.jsonl", "json"), ("two.yaml", "yaml")):
        (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        (tmp_path / name).write_text(found, encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.MULTILINE):
        assert CliRunner().invoke(app, shlex.split(command)[1:]).output == shown


def test_every_option_of_the_command_is_on_the_page() -> None:
    command = get_command(app).commands["embed"]  # type: ignore[attr-defined]
    options = {name for parameter in command.params for name in parameter.opts if name != "--help"}
    assert {name for name in options if f"`{name}" not in PAGE and f", `{name}" not in PAGE} == set()


def test_every_public_name_of_the_package_is_on_the_page() -> None:
    explained = {"CollectionInfo", "RefusedDocument", "VectorModel"}  # by what they are part of
    assert {name for name in search.__all__ if f"{name}" not in PAGE} <= explained
    assert all(getattr(search, name) is not None for name in search.__all__)
