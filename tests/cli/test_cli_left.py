"""`interlock run --resume` goes on with the runs that were left half way: what they have paid for is not paid again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PIPELINES = """
import os
from pathlib import Path
from interlock import LLMCall, PipelineContext, pipeline

def changed() -> bool:
    return Path("changed").exists()

@pipeline
async def killed(ctx: PipelineContext, text: str) -> str:
    first = await ctx.run(LLMCall(text, max_output_tokens=50))
    if not changed():
        os._exit(137)  # as kill -9 would
    second = await ctx.run(LLMCall("Go on: " + first.text, max_output_tokens=50))
    return second.text

@pipeline
async def fails(ctx: PipelineContext, text: str) -> str:
    answer = await ctx.run(LLMCall(text, max_output_tokens=50))
    if not changed():
        raise ValueError("the disk is full")
    return answer.text

@pipeline
async def asks_otherwise(ctx: PipelineContext, text: str) -> str:
    answer = await ctx.run(LLMCall("Please: " + text if changed() else text, max_output_tokens=50))
    if not changed():
        raise ValueError("asked in the wrong words")
    return answer.text
"""
GIVEN = ["--input", "in.jsonl", "--catalog", "catalog.yaml"]


@pytest.fixture
def left(folder: Any) -> Any:
    (folder.path / "left_of_test.py").write_text(PIPELINES, encoding="utf-8")
    folder.lines({"id": "a", "text": "tea"})
    return folder


def run(folder: Any, pipeline: str, *words: str, output: str = "out.jsonl") -> Any:
    return folder.call("run", f"left_of_test.py:{pipeline}", *GIVEN, "--output", output, *words)


def asked(folder: Any) -> list[tuple[str, str]]:
    return [(row["run"], row["step"]) for row in json.loads(folder.call("calls", "--json").stdout)]


def test_a_killed_line_goes_on_where_it_was(left: Any) -> None:
    words = ["run", "left_of_test.py:killed", *GIVEN, "--output", "out.jsonl"]
    code = "import sys; from interlock.runtime.cli.app import app; sys.argv[0] = 'interlock'; app()"
    ended = subprocess.run([sys.executable, "-c", code, *words], cwd=left.path, capture_output=True, timeout=120)
    assert ended.returncode == 137, ended.stderr
    ((begun, _),) = asked(left)

    Path("changed").touch()
    assert run(left, "killed", "--resume").exit_code == 0
    assert asked(left) == [(begun, "0"), (begun, "1")]
    assert left.output()[0]["run"] == begun


def test_a_failed_line_goes_on_after_what_it_has_paid_for(left: Any) -> None:
    assert run(left, "fails").exit_code == 1
    (first,) = asked(left)

    Path("changed").touch()
    again = run(left, "fails", "--resume")
    assert again.exit_code == 0, again.stderr
    assert asked(left) == [first]
    assert "1 of 1 lines done. Results" in again.stderr  # and nothing of a cost


def test_a_line_whose_pipeline_has_changed_begins_anew(left: Any) -> None:
    assert run(left, "asks_otherwise").exit_code == 1
    Path("changed").touch()
    again = run(left, "asks_otherwise", "--resume")
    assert again.exit_code == 0, again.stderr
    assert len({name for name, _ in asked(left)}) == 2
    assert "Please" in left.output()[0]["output"]


def test_two_lines_that_say_the_same_have_a_run_each(left: Any) -> None:
    left.lines({"id": "a", "text": "tea"}, {"id": "b", "text": "tea"})
    assert run(left, "fails").exit_code == 1
    before = asked(left)
    Path("changed").touch()
    assert run(left, "fails", "--resume").exit_code == 0
    assert asked(left) == before
    assert {line["run"] for line in left.output()} == {name for name, _ in before}


def test_the_run_of_another_output_is_left_alone(left: Any) -> None:
    assert run(left, "fails").exit_code == 1
    assert run(left, "fails", output="other.jsonl").exit_code == 1
    Path("changed").touch()
    assert run(left, "fails", "--resume").exit_code == 0
    kept = left.output("other.jsonl")[0]["run"]
    assert left.output()[0]["run"] != kept
    assert json.loads(left.call("runs", "show", kept, "--json").stdout)["status"] == "failed"


def test_overwrite_begins_anew(left: Any) -> None:
    assert run(left, "fails").exit_code == 1
    Path("changed").touch()
    assert run(left, "fails", "--overwrite").exit_code == 0
    assert len(asked(left)) == 2
