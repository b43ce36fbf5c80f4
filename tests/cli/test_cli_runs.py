"""`interlock runs resume`: a run that failed goes on from its record, and pays for nothing twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

FLAKY = """
from pathlib import Path
from pydantic import BaseModel
from interlock import LLMCall, PipelineContext, pipeline

class Ticket(BaseModel):
    text: str

@pipeline
async def flaky(ctx: PipelineContext, ticket: Ticket) -> str:
    answer = await ctx.run(LLMCall(ticket.text, max_output_tokens=50), key="ask")
    return f"{ticket.text}: {await ctx.step(saved)}, {len(answer.text) > 0}"

def saved() -> str:
    if not Path("fixed").exists():
        raise ValueError("the disk is full")
    return "saved"
"""


@pytest.fixture
def failed(folder: Any) -> str:
    """The id of a run that asked a model, and then could not save."""
    (folder.path / "flaky_of_test.py").write_text(FLAKY, encoding="utf-8")
    folder.lines({"text": "printer"})
    given = ["--input", "in.jsonl", "--output", "out.jsonl", "--catalog", "catalog.yaml"]
    result = folder.call("run", "flaky_of_test.py:flaky", *given)
    assert result.exit_code == 1, result.output
    run: str = folder.output()[0]["run"]
    return run


def calls(folder: Any) -> int:
    return len(json.loads(folder.call("calls", "--json").stdout))


@pytest.mark.parametrize("target", [(), ("flaky_of_test.py:flaky",)])
def test_a_failed_run_goes_on_from_its_record(folder: Any, failed: str, target: tuple[str, ...]) -> None:
    assert calls(folder) == 1
    shown = json.loads(folder.call("runs", "show", failed, "--json").stdout)
    assert (shown["status"], shown["done"], shown["failed"]) == ("failed", 2, 1)
    (folder.path / "fixed").touch()
    result = folder.call("runs", "resume", failed, *target, "--catalog", "catalog.yaml")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == "printer: saved, True"
    assert calls(folder) == 1, "the model was not asked again"
    shown = json.loads(folder.call("runs", "show", failed, "--json").stdout)
    assert (shown["status"], shown["attempt"], shown["error"]) == ("succeeded", 2, None)
    assert [step["status"] for step in shown["step_list"]] == ["succeeded", "succeeded"]


def test_from_a_step_on_everything_runs_again(folder: Any, failed: str) -> None:
    (folder.path / "fixed").touch()
    first = json.loads(folder.call("runs", "show", failed, "--json").stdout)["step_list"][0]["step"]
    result = folder.call("runs", "resume", failed, "--from", first, "--catalog", "catalog.yaml")
    assert result.exit_code == 0, result.output
    assert calls(folder) == 2


def test_a_run_that_fails_again_is_one_sentence_and_its_pipeline_must_be_there(folder: Any, failed: str) -> None:
    for words, said, code in (
        ((), f"interlock: run {failed} failed: ValueError: the disk is full", 1),
        (("pipelines_of_test.py:nothing",), "nothing", 2),
        (("--max-cost", "much"), "much", 2),
    ):
        result = folder.call("runs", "resume", failed, *words, "--catalog", "catalog.yaml")
        assert result.exit_code == code, result.output
        assert said in result.stderr
        assert "Traceback" not in result.stderr
