"""The whole runtime by seed: a provider with faults, callers of every kind, cancels, edits, a runtime that is closed.

What a run is made of stands in `world.py`, what must hold of it in `checks.py`. A seed that fails is replayed with
`python -m pytest tests/simulation --seed N`; once it is mended it goes into `KNOWN` (conftest.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from simulation.world import Plan, simulate

HERE = Path(__file__).parent.parent


def test_nothing_is_lost_leaked_or_done_twice(seed: int) -> None:
    try:
        simulate(seed)
    except BaseException as error:
        error.add_note(f"replay it: python -m pytest tests/simulation --seed {seed}\n{Plan.of(seed)}")
        raise


def test_the_same_seed_gives_the_same_trace() -> None:
    for seed in range(8):
        trace = simulate(seed)
        assert trace == simulate(seed)
        assert len(trace) > 20


def test_the_same_seed_gives_the_same_trace_in_every_process() -> None:
    """Whatever order its sets are in."""
    path = os.pathsep.join([str(HERE.parent / "src"), str(HERE)])
    command = [sys.executable, "-m", "simulation", *map(str, range(6))]
    said = [
        subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": number}, capture_output=True, check=True
        ).stdout
        for number in ("1", "2")
    ]
    assert said[0] == said[1]
    assert said[0].count(b"seed ") == 6


def test_everything_does_happen() -> None:
    """A simulation that never meets a fault proves nothing."""
    seen: set[str] = set()
    waited = refused = 0
    for seed in range(40):
        for event in simulate(seed):
            seen |= {part for part in event if isinstance(part, str)}
            refused += event[0] == "ends" and event[-1] == "RateLimitedError"
            waited += event[0] == "waited" and event[1] > 0
    assert {"ok", "llm_rate_limited", "llm_overloaded", "llm_transient", "output_truncated", "response_shape"} <= seen
    assert {"provider_refusal", "quota_exhausted", "invalid_request", "cancelled"} <= seen
    assert {"cancel", "edit", "closed", "succeeded", "failed", "left"} <= seen
    assert {"NeverFitsError", "SpendCapExceededError", "AdmissionTimeoutError", "JobTimeoutError"} <= seen
    assert {"DependencyFailedError", "KeyError", "OSError", "JobCancelledError"} <= seen
    assert min(refused, waited) > 20, "the limits bind"
