"""Words of the command line that are wrong: one sentence, exit code 2, like any other bad input."""

import sys
from typing import Any

import pytest

import interlock

RUN = ("run", "x.py:y", "--input", "a", "--output", "b")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((*RUN, "--limit", "0"), "'--limit'"),
        ((*RUN, "--limit", "abc"), "'--limit'"),
        ((*RUN, "--concurrency", "0"), "'--concurrency'"),
        (("run", "x.py:y", "--output", "b"), "missing option '--input'; see `interlock run --help`"),
        (("run",), "missing argument 'MODULE:PIPELINE'"),
        ((*RUN, "--colour"), "--colour"),
        (("dance",), "no such command 'dance'"),
        (("catalog", "dance"), "no such command 'dance'"),
        (("demo", "--entries", "0"), "'--entries'"),
        (("runs", "list", "--status", "odd"), "'--status': 'odd' is not one of 'queued'"),
    ],
)
def test_one_sentence(folder: Any, words: tuple[str, ...], part: str) -> None:
    done = folder.call(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("interlock: ")
    assert part in line
    assert " --help`" in line


def test_the_version(folder: Any) -> None:
    done = folder.call("--version")
    assert (done.exit_code, done.stdout) == (0, f"interlock {interlock.__version__}\n")


@pytest.mark.parametrize("words", [(), ("catalog",)])
def test_no_words_show_the_help(folder: Any, words: tuple[str, ...]) -> None:
    done = folder.call(*words)
    assert "Usage: " in done.output


def test_a_missing_extra_is_named_once_and_nothing_is_written(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("uvicorn", "uvicorn.config", "uvicorn.server"):
        monkeypatch.setitem(sys.modules, module, None)
    folder.lines({"text": "one"}, {"text": "two"})
    done = folder.run("triage")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "interlock: the simulated provider needs uvicorn: pip install 'interlock[simulator]'\n"
    assert "out.jsonl" not in folder.names()


def test_a_worker_takes_modules_and_says_so(folder: Any) -> None:
    done = folder.call("worker", "pipelines_of_test.py:triage")
    assert (done.exit_code, done.stderr) == (
        2,
        "interlock: 'pipelines_of_test.py:triage' names no module: write pipelines_of_test.py alone\n",
    )
