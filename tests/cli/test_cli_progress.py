"""Results survive a kill, come out in the input's order, and are never written over by accident."""

import json
from pathlib import Path
from typing import Any

import pytest

from interlock.errors import ConfigurationError
from interlock.runtime.cli.progress import ResultFile


def ok(name: str | int, output: Any = 1) -> dict[str, Any]:
    return {"id": name, "output": output}


def failed(name: str | int) -> dict[str, Any]:
    return {"id": name, "error": {"code": "llm_transient", "message": "lost"}}


def started(output: Path, *, resume: bool = False, overwrite: bool = False) -> ResultFile:
    results = ResultFile(output)
    results.open(resume=resume, overwrite=overwrite)
    return results


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def test_the_output_has_the_order_of_the_input(output: Path) -> None:
    with started(output) as results:
        for name in ("c", 2, "a"):
            results.add(ok(name))
        assert not output.exists()
        results.finish(["a", 2, "c", "never run"])
    assert [line["id"] for line in lines(output)] == ["a", 2, "c"]
    assert not results.part.exists()


def test_what_was_finished_outlives_a_kill(output: Path) -> None:
    killed = started(output)
    killed.add(ok("a"))
    killed.add(failed("b"))
    killed.close()  # and nothing more: no finish
    with killed.part.open("ab") as file:
        file.write(b'{"id": "c", "outp')  # cut off in the middle of a line
    with started(output, resume=True) as results:
        assert (set(results.done), results.failed) == ({"a"}, {"b"})
        results.add(ok("c", "again"))
        results.add(ok("b", "second try"))
        results.finish(["a", "b", "c"])
    assert lines(output) == [ok("a"), ok("b", "second try"), ok("c", "again")]


def test_a_finished_output_is_gone_on_with(output: Path) -> None:
    output.write_text(json.dumps(ok("a")) + "\n" + json.dumps(failed("b")) + "\n", encoding="utf-8")
    with started(output, resume=True) as results:
        assert set(results.done) == {"a"}
        results.add(ok("b"))
        assert lines(output)[1] == failed("b")  # until the end the old output stands
        results.finish(["a", "b"])
    assert lines(output) == [ok("a"), ok("b")]


def test_results_of_lines_no_longer_there_are_kept(output: Path) -> None:
    output.write_text(json.dumps(ok("gone")) + "\n", encoding="utf-8")
    with started(output, resume=True) as results:
        results.add(ok("new"))
        results.finish(["new"])
    assert [line["id"] for line in lines(output)] == ["new", "gone"]


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.part"])
def test_results_are_not_written_over(output: Path, name: str) -> None:
    (output.parent / name).write_text(json.dumps(ok("a")) + "\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="go on with --resume, or replace it with --overwrite"):
        ResultFile(output).open(resume=False, overwrite=False)


def test_overwrite_begins_anew(output: Path) -> None:
    output.write_text(json.dumps(ok("a")) + "\n", encoding="utf-8")
    with started(output, overwrite=True) as results:
        assert not results.done
        results.add(ok("b"))
        results.finish(["b"])
    assert lines(output) == [ok("b")]


def test_another_file_is_not_taken_for_results(output: Path) -> None:
    output.write_text('{"name": "not ours"}\n', encoding="utf-8")
    with pytest.raises(ConfigurationError, match="line 1 is no result of"):
        ResultFile(output).open(resume=True, overwrite=False)


def test_nothing_done_leaves_nothing_behind(output: Path) -> None:
    with started(output):
        pass
    assert list(output.parent.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written: No such file"):
        ResultFile(tmp_path / "none" / "out.jsonl").open(resume=False, overwrite=False)


def test_any_text_comes_back(output: Path) -> None:
    text = "naïve \u2028 \ud83d line\nbreak"
    with started(output) as results:
        results.add(ok("a", text))
        results.finish(["a"])
    assert lines(output) == [ok("a", text)]


@pytest.mark.parametrize("how", [{"resume": True}, {"overwrite": True}, {}])
def test_two_at_once_do_not_write_into_one_file(output: Path, how: dict[str, bool]) -> None:
    with started(output) as first:
        early = started(output, **how)  # before there is anything
        first.add(ok("a"))
        with pytest.raises(ConfigurationError, match="being written by another process"):
            early.add(ok("b"))
        with pytest.raises(ConfigurationError, match="being written by another process"):
            started(output, **how)
        first.add(ok("c"))
        first.finish(("a", "c"))
    assert [line["id"] for line in lines(output)] == ["a", "c"]
    with started(output, resume=True) as later:
        later.add(ok("b"))
        later.finish(("a", "b", "c"))
    assert [line["id"] for line in lines(output)] == ["a", "b", "c"]
