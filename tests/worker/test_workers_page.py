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
        said = re.sub(r"^.* runs ended \(.*\n", "", done.stdout + done.stderr, flags=re.MULTILINE)  # every 10 s
        assert (done.returncode, said) == (0, shown)


def test_submit_names_the_command_that_runs_what_it_put_there(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    told = _run(
        tmp_path, "submit examples/triage.py:triage --input examples/tickets.jsonl --limit 2 --store sqlite:///w.db"
    )
    command = re.search("`interlock (worker .*?)`", told.stdout)
    assert command is not None
    assert command[1] == "worker examples/triage.py --store sqlite:///w.db"
    done = _run(tmp_path, f"{command[1]} --until-empty --catalog examples/simulated.yaml")
    assert "2 runs succeeded, 0 failed" in done.stderr


def test_a_worker_says_where_to_look_for_what_failed(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from interlock import PipelineContext, pipeline\n"
        "@pipeline\n"
        "async def broken(ctx: PipelineContext, text: str) -> str:\n"
        "    raise ValueError(text)\n"
    )
    (tmp_path / "in.jsonl").write_text('{"text": "no"}\n')
    _run(tmp_path, "submit broken.py:broken --input in.jsonl --store sqlite:///w.db")
    done = _run(tmp_path, "worker --until-empty --store sqlite:///w.db")
    look = re.search("`interlock (runs list .*?)`", done.stderr)
    assert look is not None
    assert "ValueError" in _run(tmp_path, look[1]).stdout


def test_a_pipeline_of_the_script_that_enqueues_it_is_told_to_move(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import asyncio\n"
        "from interlock import PipelineContext, Runtime, RuntimeSettings, pipeline\n"
        "@pipeline\n"
        "async def mine(ctx: PipelineContext) -> None: ...\n"
        "async def main() -> None:\n"
        "    async with Runtime(RuntimeSettings(store='sqlite:///w.db')) as runtime:\n"
        "        await runtime.enqueue(mine())\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert "move it to a module of its own and import it from there" in done.stderr


def _run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("interlock")
    return subprocess.run([program, *command.split()], cwd=folder, capture_output=True, text=True, check=True)


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
