"""The collector is kept from a long line, and gets everything back."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from interlock.admission import pauses
from interlock.admission.pauses import Pauses


@pytest.fixture(autouse=True)
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small numbers, and nothing frozen before or after."""
    monkeypatch.setattr(pauses, "FROM", 20)
    monkeypatch.setattr(pauses, "EVERY", 10)
    assert gc.get_freeze_count() == 0
    yield
    gc.unfreeze()


def come(kept: Pauses, count: int, start: int = 0) -> None:
    for waiting in range(start + 1, start + count + 1):
        kept.came(waiting)


def test_a_long_line_is_frozen_and_handed_back_when_few_wait_again() -> None:
    kept = Pauses()
    come(kept, 19)
    assert not kept.frozen
    come(kept, 11, start=19)
    assert kept.frozen
    assert gc.get_freeze_count() > 0
    kept.went(15)
    assert kept.frozen, "a line that goes up and down is not handed back each time"
    kept.went(9)
    assert not kept.frozen
    assert gc.get_freeze_count() == 0


def test_it_can_be_turned_off() -> None:
    kept = Pauses(freeze=False)
    come(kept, 200)
    assert gc.get_freeze_count() == 0


def test_what_the_program_itself_has_frozen_is_left_alone() -> None:
    gc.freeze()
    kept = Pauses()
    come(kept, 200)
    kept.went(0)
    assert not kept.frozen
    assert gc.get_freeze_count() > 0


def test_where_the_collector_is_off_there_is_nothing_to_keep_it_from() -> None:
    gc.disable()
    try:
        kept = Pauses()
        come(kept, 200)
        assert not kept.frozen
    finally:
        gc.enable()


def test_an_admission_that_is_dropped_leaves_nothing_frozen() -> None:
    kept = Pauses()
    come(kept, 200)
    assert gc.get_freeze_count() > 0
    del kept
    assert gc.get_freeze_count() == 0
