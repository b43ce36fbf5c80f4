"""kill -9 right before and right after every COMMIT of a pipeline, the store's and the user's, on both databases."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.processes

PROGRAM = Path(__file__).parent / "killed.py"
#: Which step asks the provider for which text.
STEPS = {"ask one": "0", "ask two": "2", "ask three": "3/0"}


def lives(store: str, users: str) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """What the program tells: the run nothing happened to, a line for each that was killed, the finished run again."""
    told = subprocess.run(
        [sys.executable, str(PROGRAM), store, users], capture_output=True, text=True, timeout=600, check=False
    )
    assert told.returncode == 0, told.stderr[-4_000:]
    first, *killed, last = [json.loads(line) for line in told.stdout.splitlines()]
    return first["whole"], killed, last


def check(store: str, users: str) -> None:
    whole, killed, last = lives(store, users)
    reasons: Counter[str] = Counter()
    copied = 0
    for life in killed:
        where = f"{'before' if life['before'] else 'after'} commit {life['at']}: {life}"
        resumed = life["resumed"]
        assert {**dict(enumerate(resumed["result"])), 1: ""} == {**dict(enumerate(whole["result"])), 1: ""}, where
        assert set(resumed["steps"]) == set(whole["steps"]), where
        assert {status for status, _, _ in resumed["steps"].values()} == {"succeeded"}, where
        assert resumed["saved"] == ["2", "3/1"], f"the user's rows are there once: {where}"
        for text, step in STEPS.items():
            check_paid(text, step, life, where)
        reasons.update(again for _, again, _ in resumed["steps"].values())
        copied += sum(was_copied for _, _, was_copied in resumed["steps"].values())
    assert {life["killed"] for life in killed} == {True}
    # The faults struck where it matters. Which rows share a commit is a matter of luck, so one way may be missed.
    assert set(reasons) <= {"", "ambiguous", "paid", "uncommitted"}
    assert reasons["ambiguous"] >= 4
    assert (reasons["paid"] > 0) + (reasons["uncommitted"] > 0) + (copied > 0) >= 2
    assert last == {"ended": {**last["ended"], "result": whole["result"]}, "sent": {}}


def check_paid(text: str, step: str, life: dict[str, Any], where: str) -> None:
    """A call is sent twice only where the record says why, and what is not known of is on record as such."""
    sent, again = life["sent"].get(text, 0), life["again"].get(text, 0)
    reason = life["resumed"]["steps"][step][1]
    outcomes = [outcome for of, _, outcome in life["resumed"]["calls"] if of == step]
    assert sent <= 1, where
    assert again <= 1, where
    assert sent + again >= 1, where
    if again and sent:
        assert reason in ("ambiguous", "paid"), where
    expected = {"": ["ok"], "paid": ["ok", "ok"], "ambiguous": ["unknown", "ok"]}
    assert outcomes == expected[reason], where
    if reason:
        assert again == 1, where


def test_b36_every_commit_on_sqlite(tmp_path: Path) -> None:
    check(f"sqlite:///{tmp_path}/interlock.db", f"sqlite+aiosqlite:///{tmp_path}/users.db")


def test_b36_every_commit_on_postgres(postgres: Any) -> None:
    check(postgres.fresh(), postgres.fresh())
