"""The deadlines against a plain sorted list, whatever is added, granted and met."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interlock.admission import deadlines
from interlock.admission.deadlines import Deadlines
from interlock.admission.queues import GRANTED, WAITING

STEP = st.one_of(
    st.tuples(st.just("add"), st.floats(0, 100)),
    st.tuples(st.just("grant"), st.integers(0, 400)),
    st.tuples(st.just("due"), st.floats(0, 100)),
)


@given(st.lists(STEP, max_size=400))
def test_whoever_is_due_is_told_the_earliest_first(steps: list[tuple[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deadlines, "SWEPT_AT_ONCE", 3)
        kept, waiting = Deadlines(), list[tuple[float, Any]]()
        for what, value in steps:
            alive = [(at, who) for at, who in waiting if who.state == WAITING]
            if what == "add":
                who = SimpleNamespace(state=WAITING)
                waiting.append((value, who))
                kept.add(value, who, len(alive) + 1)
            elif what == "grant" and alive:
                alive[value % len(alive)][1].state = GRANTED
            elif what == "due":
                met = []
                while (who := kept.due(value)) is not None:
                    met.append(next(at for at, each in waiting if each is who))
                    who.state = GRANTED
                assert met == sorted(met)
                assert sorted(met) == sorted(at for at, _ in alive if at <= value)
            assert kept.earliest() == min((at for at, who in waiting if who.state == WAITING), default=inf)


def test_those_that_were_granted_do_not_pile_up() -> None:
    kept = Deadlines()
    for at in range(20_000):
        kept.add(float(at), SimpleNamespace(state=GRANTED), 5)  # type: ignore[arg-type]
    assert len(kept) < 200
