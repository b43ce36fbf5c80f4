"""`RuntimeSettings(ledger=)`: what it may be, and that a ledger which fails at the end takes nothing else with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock import PipelineContext, Runtime, RuntimeSettings, pipeline
from interlock.errors import ConfigurationError, StoreError
from interlock.runtime.store.opening import read_store
from interlock.runtime.store.reads import read_runs


@pipeline
async def nothing(ctx: PipelineContext) -> str:
    return "done"


@pytest.mark.parametrize(
    ("ledger", "said"),
    [("store", "needs a store"), ("sqlite:///:memory:", "in memory"), ("no url", "ledger= names no database")],
)
async def test_a_setting_that_names_no_ledger_is_refused(ledger: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        async with Runtime(RuntimeSettings(store=None, ledger=ledger)):
            pass


def test_no_password_of_a_url_is_shown() -> None:
    url = "postgresql://user:hunter2@host/interlock"
    assert "hunter2" not in repr(RuntimeSettings(store=url, ledger=url))


async def test_a_ledger_that_fails_at_the_end_leaves_the_store_closed_and_whole(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    runtime = await Runtime(RuntimeSettings(store=url, ledger="store")).__aenter__()
    assert await runtime.run(nothing(), run_id="r") == "done"
    dispatcher = runtime._open()
    book, ledger = dispatcher.book, dispatcher.ledger
    assert ledger is not None
    leave = ledger.leave

    async def broken() -> None:
        await leave()
        raise RuntimeError("a fault of its own")

    ledger.leave = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a fault of its own"):
        await runtime.__aexit__(None, None, None)
    with pytest.raises(StoreError, match="is closed"):
        await book.read_runs()
    (row,) = read_store(url, read_runs)
    assert (row.run_id, row.status) == ("r", "succeeded")
