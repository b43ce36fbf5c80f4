"""The store as a runtime uses it: a URL that is refused, a store that fails, what is kept of an answer."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from interlock.errors import StoreError
from interlock.runtime import LLMCall, Runtime


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:////nowhere/at/all/s.db", r"nowhere/at/all does not exist"),
        ("mysql://me:hunter22@host/db", r"write it as sqlite:///interlock.db or postgresql://"),
        ("postgresql://me:hunter22@127.0.0.1:1/db", r"cannot be opened: .*Check that the server runs"),
        ("postgresql://127.0.0.1:1/db?user=me&password=hunter22", r"the store postgresql://127.0.0.1:1/db cannot be"),
        ("what is this", r"cannot be read"),
        ("sqlite:////etc/hostname", r"cannot be opened"),
    ],
)
async def test_a_store_that_cannot_be_opened_is_one_sentence(world: Any, url: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as caught:
        async with world.runtime(store=url):
            pass
    assert "hunter22" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_store_that_fails_fails_the_job_whose_row_is_lost(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.runtime(store=f"sqlite:///{tmp_path}/s.db") as runtime:
        await world.until(runtime.run(LLMCall("x")))
        connection = sqlite3.connect(tmp_path / "s.db")
        connection.execute("DROP TABLE calls")
        connection.commit()
        connection.close()
        with pytest.raises(StoreError, match="no such table"):
            await world.until(runtime.run(LLMCall("x")))
        assert runtime.statistics().admission.account("model:fake-small:requests").debt == 0


async def test_the_answers_text_is_kept_only_where_the_deployment_says_so(world: Any) -> None:
    for keep, expected in ((False, None), (True, "ok")):
        async with world.runtime(keep_text=keep, store="sqlite:///:memory:") as runtime:
            await world.until(runtime.run(LLMCall("x")))
            assert (await runtime.calls())[0].record.text == expected


async def test_b26_a_nul_in_an_answer_loses_nothing(world: Any, Step: Any) -> None:
    world.provider.script(Step(text="a\x00b"))
    async with world.runtime(keep_text=True, store="sqlite:///:memory:") as runtime:
        response = await world.until(runtime.run(LLMCall("x")))
        assert response.text == (await runtime.calls())[0].record.text == "a\x00b"


async def test_the_loop_is_never_blocked_by_the_store(world: Any, tmp_path: Path) -> None:
    async with world.runtime(store=f"sqlite:///{tmp_path}/s.db") as runtime:
        assert isinstance(runtime, Runtime)
        lock = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        handle = runtime.submit(LLMCall("x"))
        await world.run_until(lambda: world.provider.count == 1 and world.provider.in_flight == 0)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not handle.done, "its record is not committed yet"
        lock.execute("COMMIT")
        lock.close()
        assert (await handle).text == "ok"
