"""The clock of a host: one for all its processes, over boots, and never back."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.admission.ledger.sqlite import Tables

MODULE = "interlock.admission.ledger.sqlite"


def opened(path: Path) -> float:
    tables = Tables(path, None)
    tables.make()
    now = tables.now()
    tables.execute("update ledger_clock set latest = ?", (now,))
    tables.close()
    return now


def test_a_wrong_time_of_day_does_not_move_the_clock_of_a_ledger_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(tmp_path / "ledger.db")
    monkeypatch.setattr(f"{MODULE}.time.time", lambda: 0.0)
    assert first <= opened(tmp_path / "ledger.db") < first + 60


def test_after_a_boot_it_goes_on_from_the_time_of_day_but_not_behind_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    monkeypatch.setattr(f"{MODULE}.boot_id", lambda: "one")
    monkeypatch.setattr(f"{MODULE}.since_boot", lambda: 5_000.0)
    monkeypatch.setattr(f"{MODULE}.time.time", lambda: 1_800_000_000.0)
    first = opened(path)
    assert first == 1_800_000_000.0 - 1_767_225_600.0
    monkeypatch.setattr(f"{MODULE}.boot_id", lambda: "two")
    monkeypatch.setattr(f"{MODULE}.since_boot", lambda: 10.0)
    monkeypatch.setattr(f"{MODULE}.time.time", lambda: 1_800_000_100.0)
    assert opened(path) == first + 100
    monkeypatch.setattr(f"{MODULE}.boot_id", lambda: "three")
    monkeypatch.setattr(f"{MODULE}.time.time", lambda: 1_700_000_000.0)
    assert opened(path) == first + 100
