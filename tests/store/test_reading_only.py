"""Commands that only read, on a store that may not be written. In a process of its own: root may write anywhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from interlock.runtime.journal.protocol import RunHead, RunStatus
from interlock.runtime.store.journal_sql import head_values, insert_run
from interlock.runtime.store.opening import read_store, upgrade_store

#: Root gives up the right to write where it may not, which holds from the next `exec` on.
AS_ANYBODY = """
import ctypes, os, sys
if os.geteuid() == 0:
    CAPBSET_DROP, DAC_OVERRIDE = 24, 1
    if ctypes.CDLL(None).prctl(CAPBSET_DROP, DAC_OVERRIDE, 0, 0, 0):
        sys.exit("root may not give up a right here")
os.execv(sys.executable, [sys.executable, "-c", "from interlock.runtime.cli import main; main()", *sys.argv[1:]])
"""


def interlock(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", AS_ANYBODY, *words], capture_output=True, text=True)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A store with the run `r`, that a process has used and closed, in a folder where nothing can be made."""
    folder = tmp_path / "100% read only #1"
    folder.mkdir()
    file = folder / "s.db"
    shutil.copy(_store_with("r", tmp_path), file)
    folder.chmod(0o555)
    yield file
    folder.chmod(0o755)


def _store_with(run_id: str, folder: Path) -> Path:
    url = f"sqlite:///{folder}/made.db"
    upgrade_store(url)
    now = datetime.now(UTC)
    values = head_values(RunHead(run_id=run_id, pipeline="triage", started_at=now), "nobody", now)
    read_store(url, lambda connection: insert_run("sqlite").execute(connection, [values]), writes=True)
    return folder / "made.db"


@pytest.mark.parametrize("mode", [0o644, 0o444])
def test_what_only_reads_reads_where_nothing_may_be_written(file: Path, mode: int) -> None:
    file.chmod(mode)
    store = ("--store", f"sqlite:///{file}")
    listed = interlock("runs", "list", "--json", *store)
    assert [run["run"] for run in json.loads(listed.stdout)] == ["r"], listed.stderr
    assert interlock("runs", "show", "r", *store).stdout.startswith("r: triage")
    assert json.loads(interlock("calls", "--json", *store).stdout) == []
    assert "0 runs" in interlock("runs", "prune", "--older-than", "1d", "--dry-run", *store).stdout
    assert os.listdir(file.parent) == ["s.db"]


def test_what_changes_a_store_that_may_not_be_written_says_so(file: Path) -> None:
    ended = interlock("runs", "cancel", "r", "--store", f"sqlite:///{file}")
    assert ended.returncode == 2
    assert "Choose a path that can be written to" in ended.stderr


def test_rows_that_are_in_the_log_alone_are_never_passed_over(file: Path) -> None:
    file.parent.chmod(0o755)
    file.with_name("s.db-wal").write_bytes(b"of a copy that was made with it")
    file.parent.chmod(0o555)
    ended = interlock("runs", "list", "--store", f"sqlite:///{file}")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "cannot be opened" in ended.stderr


def test_a_run_that_is_read_while_its_process_lives_is_read_with_its_log(tmp_path: Path) -> None:
    import sqlite3

    file = _store_with("r", tmp_path)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("PRAGMA journal_mode=WAL")
    other.execute("UPDATE runs SET status = ?", (str(RunStatus.SUCCEEDED),))  # in the log, and not yet in the file
    tmp_path.chmod(0o555)
    try:
        listed = interlock("runs", "list", "--json", "--store", f"sqlite:///{file}")
    finally:
        tmp_path.chmod(0o755)
        other.close()
    assert [run["status"] for run in json.loads(listed.stdout)] == ["succeeded"], listed.stderr
