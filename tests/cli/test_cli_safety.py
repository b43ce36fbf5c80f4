"""Nothing that was paid for is lost: a refused or failed run leaves every file as it was, and Ctrl-C drops what has not
been sent."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from interlock.errors import ConfigurationError
from interlock.runtime.cli.progress import ResultFile

PAID = {"id": 1, "line": 1, "output": "PAID FOR"}
LINE = json.dumps(PAID) + "\n"

PIPELINES = '''
import asyncio, signal
from interlock import Choice, DecisionCall, LLMCall, PipelineContext, pipeline

@pipeline
async def pressed(ctx: PipelineContext, text: str) -> str:
    """Presses Ctrl-C once its answer is there, as often as its text says."""
    answer = await ctx.run(LLMCall(text, max_output_tokens=50))
    for _ in range(text.count("^C")):
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
    if "^C^C" in text:
        await asyncio.sleep(60)
    return answer.text

PRESSED = []

@pipeline
async def first_presses(ctx: PipelineContext, text: str) -> str:
    """Whoever has the first answer presses Ctrl-C. Before that each has had a decision, for nothing."""
    await ctx.run(DecisionCall(text, {"team": Choice.of("Which team?", "tea", "milk")}))
    answer = await ctx.run(LLMCall(text, max_output_tokens=50))
    if not PRESSED:
        PRESSED.append(text)
        signal.raise_signal(signal.SIGINT)
    return answer.text

@pipeline
async def pays_then_fails(ctx: PipelineContext, text: str) -> str:
    await ctx.run(LLMCall(text, max_output_tokens=50))
    raise ValueError(f"no use for {text}")
'''

NUMBERS = """
from interlock import PipelineContext, pipeline

@pipeline
async def number(ctx: PipelineContext, text: str) -> dict[str, float]:
    return {"score": float(text)}
"""

TERMINATED = """
import signal
from interlock import PipelineContext, pipeline

@pipeline
async def terminated(ctx: PipelineContext, text: str) -> str:
    signal.raise_signal(signal.SIGTERM)
    return text
"""

#: Free and on this machine: a line that has had a decision has not cost anything.
LOCAL_DECISIONS = """\
  - {id: sparrow, kind: decision, provider: sparrow, wire_model_id: sparrow-decider, prices: {input: 0}}
pins: {SMALL: [simulated-small], decision: sparrow}
"""


def contents(folder: Any) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.path.iterdir() if path.is_file()}


@pytest.fixture
def paid(folder: Any) -> Any:
    """A run was killed after its first line; an older output is there too."""
    folder.lines({"text": "tea"}, {"text": "milk"})
    (folder.path / "out.jsonl.part").write_text(LINE, encoding="utf-8")
    (folder.path / "out.jsonl").write_text(LINE.replace("PAID FOR", "OLDER"), encoding="utf-8")
    (folder.path / "bad.yaml").write_text("models: [", encoding="utf-8")
    (folder.path / "bad.jsonl").write_text("{", encoding="utf-8")
    (folder.path / "more_of_test.py").write_text(PIPELINES, encoding="utf-8")
    return folder


@pytest.mark.parametrize("how", [(), ("--overwrite",), ("--resume",), ("--resume", "--overwrite")])
@pytest.mark.parametrize(
    "wrong",
    [
        ("--catalog", "bad.yaml"),
        ("--catalog", "none.yaml"),
        ("--input", "bad.jsonl"),
        ("--input", "none.jsonl"),
        ("--store", "sqlite:///no/folder/x.db"),
        ("--max-cost", "5 EUR"),
        ("--max-cost", "0"),
        ("--limit", "0"),
        ("--configure", "none.py:configure"),
    ],
)
def test_a_run_that_cannot_begin_touches_nothing(paid: Any, how: tuple[str, ...], wrong: tuple[str, ...]) -> None:
    before = contents(paid)
    done = paid.run("triage", *how, *wrong)
    assert done.exit_code == 2, done.output
    assert contents(paid) == before


@pytest.mark.parametrize("pipeline", ["asks_for_a_stranger", "no_such_pipeline"])
@pytest.mark.parametrize("how", ["--overwrite", "--resume"])
def test_a_set_up_that_fails_every_line_touches_nothing(paid: Any, how: str, pipeline: str) -> None:
    before = contents(paid)
    done = paid.run(pipeline, how)
    assert done.exit_code == 2, done.output
    assert contents(paid) == before  # and no interlock.db is left behind either


def test_a_plain_run_after_a_kill_is_refused_and_resume_goes_on(paid: Any) -> None:
    before = contents(paid)
    refused = paid.run("shout")
    assert refused.exit_code == 2
    assert "out.jsonl.part is there already: go on with --resume" in refused.stderr
    assert contents(paid) == before
    assert paid.run("shout", "--resume").exit_code == 0
    assert [line["output"] for line in paid.output()] == ["PAID FOR", "MILK"]
    assert "out.jsonl.part" not in paid.names()


def test_overwrite_replaces_only_once_something_is_done(paid: Any) -> None:
    assert paid.run("shout", "--overwrite").exit_code == 0
    assert [line["output"] for line in paid.output()] == ["TEA", "MILK"]
    assert "out.jsonl.part" not in paid.names()


def test_a_damaged_output_is_named_with_its_line_and_can_be_mended(folder: Any) -> None:
    folder.lines({"text": "tea"}, {"text": "milk"})
    (folder.path / "out.jsonl").write_text(LINE + '{"id": 2, "outp\n', encoding="utf-8")
    before = contents(folder)
    refused = folder.run("shout", "--resume")
    assert refused.exit_code == 2
    assert "out.jsonl: line 2 is no result of `interlock run`" in refused.stderr
    assert contents(folder) == before
    (folder.path / "out.jsonl").write_text(LINE, encoding="utf-8")
    assert folder.run("shout", "--resume").exit_code == 0
    assert [line["output"] for line in folder.output()] == ["PAID FOR", "MILK"]


@pytest.mark.parametrize("output", [".", "", "folder", "none/out.jsonl", "in.jsonl/out.jsonl"])
def test_an_output_that_is_no_file(folder: Any, output: str) -> None:
    folder.lines({"text": "tea"})
    (folder.path / "folder").mkdir()
    before = contents(folder)
    done = folder.run("shout", "--output", output)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.output
    assert "cannot be written" in done.stderr
    assert contents(folder) == before


def test_a_full_disk_keeps_what_was_done(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.lines({"text": "tea"})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("interlock.runtime.cli.progress.os.replace", full)
    done = folder.run("shout")
    assert done.exit_code == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.output


def test_another_inputs_results_are_not_mixed_in(folder: Any) -> None:
    folder.lines({"id": "a", "text": "tea"}, {"id": "b", "text": "milk"})
    assert folder.run("shout").exit_code == 0
    before = contents(folder)
    folder.lines({"id": "c", "text": "salt"}, name="other.jsonl")
    refused = folder.run("shout", "--resume", "--input", "other.jsonl")
    assert refused.exit_code == 2
    assert "2 results that are not of other.jsonl (no line has the id 'a')" in refused.stderr
    assert {**before, "other.jsonl": b""}.keys() == contents(folder).keys()
    assert contents(folder)["out.jsonl"] == before["out.jsonl"]


def test_lines_without_ids_are_told_apart_by_what_they_say(folder: Any) -> None:
    folder.lines({"text": "tea"}, {"text": "milk"})
    assert folder.run("shout", "--limit", "1").exit_code == 0
    folder.lines({"text": "salt"}, {"text": "milk"})
    refused = folder.run("shout", "--resume")
    assert (refused.exit_code, "line 1 has changed since" in refused.stderr) == (2, True)
    folder.lines({"text": "tea"}, {"text": "milk"}, {"text": "more"})
    assert folder.run("shout", "--resume").exit_code == 0
    assert [line["output"] for line in folder.output()] == ["TEA", "MILK", "MORE"]


def test_an_empty_input_names_no_output(folder: Any) -> None:
    folder.lines()
    done = folder.run("shout")
    assert (done.exit_code, done.stderr) == (0, "in.jsonl has no lines: nothing was run, nothing was written.\n")
    assert "out.jsonl" not in folder.names()


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real.jsonl").touch()
    link = tmp_path / "out.jsonl"
    link.symlink_to("real.jsonl")
    with ResultFile(link) as results:
        results.open(resume=False, overwrite=False)
        results.add({"id": 1, "output": 1})
        results.finish([1])
    assert link.is_symlink()
    assert (tmp_path / "real.jsonl").read_text(encoding="utf-8") == '{"id": 1, "output": 1}\n'


def test_an_output_that_cannot_be_put_in_place_says_where_the_results_are(tmp_path: Path) -> None:
    results = ResultFile(tmp_path / "out.jsonl")
    results.open(resume=False, overwrite=False)
    results.add({"id": 1, "output": 1})
    (tmp_path / "out.jsonl").mkdir()
    with pytest.raises(ConfigurationError, match=r"Nothing is lost: .*out\.jsonl\.part"):
        results.finish([1])
    results.close()
    assert (tmp_path / "out.jsonl.part").read_text(encoding="utf-8") == '{"id": 1, "output": 1}\n'


@pytest.fixture
def one_at_a_time(paid: Any) -> Any:
    """The model serves one call at a time, so the others wait in the line."""
    (paid.path / "out.jsonl.part").unlink()
    (paid.path / "out.jsonl").unlink()
    text = (paid.path / "catalog.yaml").read_text(encoding="utf-8")
    limited = text.replace("    structured:", "    limits: {max_concurrent: 1}\n    structured:")
    limited = limited.replace("pins: {SMALL: [simulated-small]}", LOCAL_DECISIONS)
    (paid.path / "catalog.yaml").write_text(limited, encoding="utf-8")
    return paid


def pressed(folder: Any, pipeline: str, *words: str) -> Any:
    given = ["--input", "in.jsonl", "--output", "out.jsonl", "--catalog", "catalog.yaml"]
    return folder.call("run", f"more_of_test.py:{pipeline}", *given, *words)


def test_ctrl_c_drops_the_lines_that_wait(one_at_a_time: Any) -> None:
    folder = one_at_a_time
    folder.lines(*({"text": f"tea {number}"} for number in range(21)))
    stopped = pressed(folder, "first_presses")
    assert stopped.exit_code == 130, stopped.output
    assert 1 <= len(folder.output()) <= 10  # one, and what was sent before the signal was heard
    assert all("output" in line for line in folder.output())
    assert f"{21 - len(folder.output())} lines are left. Go on with: " in stopped.stderr
    assert pressed(folder, "first_presses", "--resume").exit_code == 0
    assert len(folder.output()) == 21


def test_a_second_ctrl_c_still_says_what_it_cost(one_at_a_time: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.runtime.cli.interrupts.GIVING_BACK_S", 0.05)
    folder = one_at_a_time
    folder.lines({"text": "^C^C"}, {"text": "tea"})
    stopped = pressed(folder, "pressed")
    assert stopped.exit_code == 130, stopped.output
    assert "Cancelling what is in flight" in stopped.stderr
    assert "Stopped by Ctrl-C" in stopped.stderr
    assert re.search(r"0\.0\d+ USD", stopped.stderr)
    assert "Traceback" not in stopped.output


def test_failed_lines_are_summed_up_by_their_error(paid: Any) -> None:
    words = ["--input", "in.jsonl", "--output", "new.jsonl", "--catalog", "catalog.yaml"]
    failed = paid.call("run", "more_of_test.py:pays_then_fails", *words)
    assert failed.exit_code == 1
    assert "0 of 2 lines done; 2 failed" in failed.stderr
    assert "  ValueError: 2 lines, the first line 1: no use for tea" in failed.stderr


def test_an_input_that_can_be_read_once_only_is_refused(folder: Any) -> None:
    os.mkfifo(folder.path / "pipe")
    done = folder.run("shout", "--input", "pipe")
    assert done.exit_code == 2
    assert "pipe is a pipe or a device, and the input is read more than once" in done.stderr


@pytest.mark.parametrize("keep", ["in.jsonl", "in.jsonl/below", "/proc/none"])
def test_a_demo_folder_that_cannot_be_used(folder: Any, keep: str) -> None:
    folder.lines({"text": "tea"})
    done = folder.call("demo", "--json", "--keep", keep)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.output
    assert "cannot be made or written" in done.stderr


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_a_result_that_json_has_no_form_for_is_that_lines_failure(folder, text):
    (folder.path / "numbers_of_test.py").write_text(NUMBERS, encoding="utf-8")
    folder.lines({"text": "1.5"}, {"text": text})
    ran = folder.call("run", "numbers_of_test.py:number", "--input", "in.jsonl", "--output", "out.jsonl", "--catalog",
                      "catalog.yaml")  # fmt: skip
    assert ran.exit_code == 1
    first, second = folder.output()
    assert first["output"] == {"score": 1.5}
    assert second["error"]["code"] == "output"


def test_a_sigterm_finishes_what_has_been_sent_too(folder):
    (folder.path / "terminated_of_test.py").write_text(TERMINATED, encoding="utf-8")
    folder.lines({"text": "one"}, {"text": "two"}, {"text": "three"})
    ran = folder.call("run", "terminated_of_test.py:terminated", "--input", "in.jsonl", "--output", "out.jsonl",
                      "--catalog", "catalog.yaml", "--concurrency", "1")  # fmt: skip
    assert ran.exit_code == 143
    assert "Stopped by SIGTERM" in ran.stderr
    assert "--resume" in ran.stderr
    assert [line["output"] for line in folder.output()] == ["one"]


def test_the_input_is_never_its_own_output(folder):
    folder.lines({"text": "1.5"})
    (folder.path / "link.jsonl").symlink_to("in.jsonl")
    (folder.path / "numbers_of_test.py").write_text(NUMBERS, encoding="utf-8")
    before = contents(folder)
    for output in ("in.jsonl", "link.jsonl"):
        for flag in ("--overwrite", "--resume"):
            ran = folder.call("run", "numbers_of_test.py:number", "--input", "in.jsonl", "--output", output, flag,
                              "--catalog", "catalog.yaml")  # fmt: skip
            assert ran.exit_code == 2
            assert "is the input itself" in ran.stderr
    assert contents(folder) == before


def test_a_good_line_cannot_have_a_bad_lines_name(folder):
    (folder.path / "numbers_of_test.py").write_text(NUMBERS, encoding="utf-8")
    folder.lines({"id": "line 2", "text": "1"}, "BAD\n", {"text": "3"})
    ran = folder.call("run", "numbers_of_test.py:number", "--input", "in.jsonl", "--output", "out.jsonl", "--skip-bad",
                      "--catalog", "catalog.yaml")  # fmt: skip
    assert [("error" in line, line["line"]) for line in folder.output()] == [(True, 1), (True, 2), (False, 3)]
    assert ran.exit_code == 1 or "bad lines" in ran.stderr
