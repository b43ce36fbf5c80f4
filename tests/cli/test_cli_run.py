"""`interlock run`: one run a line, in order, gone on with where it stopped."""

import json
import shlex
from typing import Any

import pytest


def ids(lines: list[dict[str, Any]]) -> list[Any]:
    return [line["id"] for line in lines]


def test_each_line_is_a_run_and_the_output_is_in_order(folder: Any) -> None:
    folder.lines(*({"id": f"t{number}", "text": f"Ticket {number} is about tea."} for number in range(6)))
    done = folder.run("triage")
    assert done.exit_code == 0, done.stderr
    lines = folder.output()
    assert ids(lines) == [f"t{number}" for number in range(6)]
    assert lines[3]["output"] == {"summary": "Ticket 3 is about tea."}
    assert [line["line"] for line in lines] == list(range(1, 7))
    assert "6 of 6 lines done" in done.stderr
    assert "USD. Results: out.jsonl" in done.stderr

    runs = {line["run"] for line in lines}
    shown = folder.call("calls", "--last", "1h", "--json")
    assert {call["run"] for call in json.loads(shown.stdout)} == runs


def test_a_failed_line_is_reported_and_does_not_stop_the_rest(folder: Any) -> None:
    folder.lines({"id": "a", "text": "tea"}, {"id": "b", "text": "fail"}, {"id": "c", "text": "milk"})
    done = folder.run("shout")
    assert done.exit_code == 1
    first, second, third = folder.output()
    assert (first["output"], third["output"]) == ("TEA", "MILK")
    assert second["id"] == "b"
    assert second["error"] == {"code": "ValueError", "message": "this one cannot be shouted"}
    assert "2 of 3 lines done; 1 failed" in done.stderr


def test_a_bad_line_is_named_by_its_number_before_anything_runs(folder: Any) -> None:
    folder.lines({"text": "tea"}, "oops\n", {"text": 5})
    before = folder.names()
    done = folder.run("shout")
    assert done.exit_code == 2
    assert "line 2: not JSON" in done.stderr
    assert "line 3: text: Input should be a valid string" in done.stderr
    assert folder.names() == before


def test_bad_lines_can_be_left_out(folder: Any) -> None:
    folder.lines({"id": 3, "text": "tea"}, "oops\n", {"id": 3, "text": "again"}, {"text": "milk"})
    done = folder.run("shout", "--skip-bad")
    assert done.exit_code == 0
    lines = folder.output()
    assert ids(lines) == [3, "line 2", "line 3", 4]
    assert [line["line"] for line in lines] == [1, 2, 3, 4]
    assert lines[1]["error"] == {"code": "bad_line", "message": "not JSON (Expecting value)"}
    assert lines[2]["error"]["message"] == "has the id 3 of line 1"
    assert "2 bad lines left out" in done.stderr


def test_resume_does_not_repeat_what_is_done(folder: Any) -> None:
    folder.lines(*({"id": number, "text": f"x{number}"} for number in range(5)))
    assert folder.run("shout", "--limit", "2").exit_code == 0
    assert ids(folder.output()) == [0, 1]
    first = folder.output()[0]["run"]

    again = folder.run("shout", "--limit", "2")
    assert again.exit_code == 2
    assert "out.jsonl is there already: go on with --resume" in again.stderr

    resumed = folder.run("shout", "--resume")
    assert resumed.exit_code == 0
    assert ids(folder.output()) == [0, 1, 2, 3, 4]
    assert folder.output()[0]["run"] == first
    assert "3 of 5 lines done; 2 were done before" in resumed.stderr


def test_resume_runs_failed_lines_again(folder: Any) -> None:
    folder.lines({"id": "a", "text": "fail"}, {"id": "b", "text": "tea"})
    assert folder.run("shout").exit_code == 1
    folder.lines({"id": "a", "text": "mended"}, {"id": "b", "text": "not run again"})
    assert folder.run("shout", "--resume").exit_code == 0
    assert [line["output"] for line in folder.output()] == ["MENDED", "TEA"]


def test_ctrl_c_finishes_what_is_in_flight_and_says_how_to_go_on(folder: Any) -> None:
    folder.lines(*({"id": number, "text": "^C" if number == 2 else "x"} for number in range(6)))
    stopped = folder.run("interrupted", "--concurrency", "1", "--store", "sqlite:///other.db")
    assert stopped.exit_code == 130
    assert ids(folder.output()) == [0, 1, 2]
    assert "Finishing what has been sent" in stopped.stderr
    assert "3 lines are left. Go on with: interlock run" in stopped.stderr

    words = shlex.split(stopped.stderr.rpartition("Go on with: ")[2])
    assert words[:2] == ["interlock", "run"]
    assert folder.call(*words[1:]).exit_code == 0
    assert ids(folder.output()) == [0, 1, 2, 3, 4, 5]


def test_a_second_ctrl_c_keeps_what_was_done(folder: Any) -> None:
    folder.lines({"id": "a", "text": "x"}, {"id": "b", "text": "^C^C"}, {"id": "c", "text": "x"})
    stopped = folder.run("interrupted", "--concurrency", "1")
    assert stopped.exit_code == 130
    assert "Traceback" not in stopped.output
    assert ids(folder.output()) == ["a"]
    assert "2 lines are left" in stopped.stderr


def test_the_cost_cap_stops_the_run_and_says_so(folder: Any) -> None:
    folder.lines(*({"id": number, "text": "Tea is a drink. " * 20} for number in range(8)))
    capped = folder.run("triage", "--max-cost", "0.0016", "--concurrency", "1")
    assert capped.exit_code == 1
    lines = folder.output()
    done = [line for line in lines if "output" in line]
    assert 1 <= len(done) < 8
    assert lines[-1]["error"]["code"] == "spend_cap_exceeded"
    assert len(lines) == len(done) + 1
    assert "Stopped at the cost cap" in capped.stderr
    assert folder.run("triage", "--resume").exit_code == 0
    assert ids(folder.output()) == list(range(8))


def test_a_result_without_a_json_form_is_a_failed_line(folder: Any) -> None:
    folder.lines({"text": "x"})
    assert folder.run("gives_an_object").exit_code == 1
    assert folder.output()[0]["error"]["code"] == "unencodable"


def test_a_pipeline_by_its_modules_name(folder: Any) -> None:
    folder.lines({"text": "tea"})
    words = ["--input", "in.jsonl", "--output", "out.jsonl", "--catalog", "catalog.yaml"]
    assert folder.call("run", "pipelines_of_test:shout", *words).exit_code == 0
    assert folder.output()[0]["output"] == "TEA"


@pytest.mark.parametrize("concurrency", ["1", "3"])
def test_the_order_does_not_depend_on_who_is_first(folder: Any, concurrency: str) -> None:
    folder.lines(*({"id": number, "text": "fail" if number % 3 == 1 else "x"} for number in range(10)))
    folder.run("shout", "--concurrency", concurrency)
    assert ids(folder.output()) == list(range(10))


def test_an_error_of_another_library_goes_by_its_class_whatever_it_calls_its_code(folder: Any) -> None:
    source = """
from interlock import PipelineContext, pipeline

class LockedError(Exception):
    code = "e3q8"

@pipeline
async def locked(ctx: PipelineContext, text: str) -> str:
    raise LockedError("database is locked")
"""
    (folder.path / "locked_of_test.py").write_text(source, encoding="utf-8")
    folder.lines({"id": "a", "text": "tea"})
    given = ["--input", "in.jsonl", "--output", "out.jsonl", "--catalog", "catalog.yaml"]
    done = folder.call("run", "locked_of_test.py:locked", *given)
    assert done.exit_code == 1
    assert folder.output()[0]["error"] == {"code": "LockedError", "message": "database is locked"}
    assert "LockedError: line 1: database is locked" in done.stderr
