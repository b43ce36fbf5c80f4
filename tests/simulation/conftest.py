"""Which seeds are run: `--seeds N` the first N, `--seed N` just that one."""

from __future__ import annotations

import pytest

#: Seeds that once failed. They are always run.
KNOWN: tuple[int, ...] = ()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" not in metafunc.fixturenames:
        return
    config = metafunc.config
    seeds = config.getoption("--seed") or [*dict.fromkeys([*KNOWN, *range(config.getoption("--seeds"))])]
    metafunc.parametrize("seed", seeds, ids=[f"seed-{seed}" for seed in seeds])
