"""Bad input is one clear sentence with exit code 2: no traceback, nothing half-written."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

GOOD = {"text": "tea"}
ANTHROPIC = """
models:
  - id: haiku
    grade: SMALL
    provider: anthropic-direct
    wire_model_id: h
    context_window: 1000
    max_output_tokens: 500
providers: {anthropic-direct: {credential: anthropic-api-key}}
pins: {SMALL: [haiku]}
"""


def refused(done: Result, *parts: str) -> None:
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("interlock: ")
    for part in parts:
        assert part in lines[0]


@pytest.fixture
def untouched(folder: Any) -> Any:
    """Whatever the command is refused for, the folder is as it was."""
    folder.lines(GOOD)
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    yield folder
    assert {path.name: path.read_bytes() for path in folder.path.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("triage", ("'triage' names no pipeline", "pipelines.py:triage")),
        ("none.py:triage", ("none.py: there is no such file",)),
        ("no_such_module:triage", ("there is no module 'no_such_module'", "no_such_module.py")),
        ("pipelines_of_test.py:triag", ("has no pipeline 'triag'", "did you mean triage?")),
        ("pipelines_of_test.py:nothing_like_it", ("it has asks_for_a_stranger, ",)),
        ("pipelines_of_test.py:not_a_pipeline", ("is no pipeline but a int", "put @pipeline on it")),
    ],
)
def test_a_pipeline_that_is_not_there(untouched: Any, target: str, parts: tuple[str, ...]) -> None:
    refused(untouched.call("run", target, "--input", "in.jsonl", "--output", "out.jsonl"), *parts)


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("def broken(:\n", ("broken_of_test.py cannot be imported: SyntaxError",)),
        ("import no_such_package\n", ("ModuleNotFoundError: No module named 'no_such_package'",)),
        ("x = 1\ny = x / 0\n", ("ZeroDivisionError: division by zero", "(line 2 of broken_of_test.py)")),
        ("raise SystemExit(3)\n", ("cannot be imported: SystemExit: 3",)),
    ],
)
def test_a_pipeline_that_cannot_be_imported(folder: Any, source: str, parts: tuple[str, ...]) -> None:
    folder.lines(GOOD)
    (folder.path / "broken_of_test.py").write_text(source, encoding="utf-8")
    refused(folder.call("run", "broken_of_test.py:triage", "--input", "in.jsonl", "--output", "out.jsonl"), *parts)
    assert "out.jsonl" not in folder.names()


def test_an_input_that_is_not_json_lines(folder: Any) -> None:
    folder.lines("name,age\n", "tea,3\n")
    before = folder.names()
    refused(folder.run("shout"), "in.jsonl: line 1: not JSON", "line 2: not JSON", "Nothing was run")
    assert folder.names() == before


def test_an_input_that_is_not_there(untouched: Any) -> None:
    words = ("--input", "none.jsonl", "--output", "out.jsonl")
    refused(untouched.call("run", "pipelines_of_test.py:shout", *words), "none.jsonl cannot be read: No such file")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (None, ("bad.yaml: there is no such file",)),
        ("models: [", ("bad.yaml:1",)),
        ("models:\n  - {id: a, colour: red}\n", ("bad.yaml:2", "colour")),
    ],
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_a_wrong_catalog(folder: Any, text: str | None, parts: tuple[str, ...], command: str) -> None:
    folder.lines(GOOD)
    if text is not None:
        (folder.path / "bad.yaml").write_text(text, encoding="utf-8")
    before = folder.names()
    done = (
        folder.run("shout", "--catalog", "bad.yaml")
        if command == "run"
        else folder.call("catalog", "check", "bad.yaml")
    )
    refused(done, *parts)
    assert folder.names() == before


def test_an_unknown_model(folder: Any) -> None:
    folder.lines(GOOD)
    refused(folder.run("asks_for_a_stranger"), "has no model 'no-such-model'")
    assert folder.names() & {"out.jsonl", "out.jsonl.part"} == set()
    refused(folder.call("catalog", "show", "no-such-model"), "has no model 'no-such-model'")


def test_a_wrong_set_up_leaves_earlier_results_alone(folder: Any) -> None:
    folder.lines({"id": "a", "text": "tea"}, {"id": "b", "text": "milk"})
    assert folder.run("shout", "--limit", "1").exit_code == 0
    before = folder.output()
    refused(folder.run("asks_for_a_stranger", "--resume"), "has no model 'no-such-model'")
    assert folder.output() == before
    assert "out.jsonl.part" not in folder.names()


def test_a_missing_credential(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(folder.path))
    (folder.path / "anthropic.yaml").write_text(ANTHROPIC, encoding="utf-8")
    folder.lines(GOOD, GOOD | {"id": 9})
    refused(folder.run("triage", "--catalog", "anthropic.yaml"), "anthropic-api-key", "ANTHROPIC_API_KEY")
    assert folder.names() & {"out.jsonl", "out.jsonl.part"} == set()


@pytest.mark.parametrize(
    ("store", "parts"),
    [
        ("sqlite:///no/such/folder/interlock.db", ("no/such/folder/interlock.db cannot be opened", "does not exist")),
        ("sqlite:///catalog.yaml", ("catalog.yaml cannot be opened",)),
        ("mysql://someone:secret@127.0.0.1/x", ("of a kind this version cannot use",)),
        ("postgresql://someone:secret@127.0.0.1:1/x", ("127.0.0.1:1/x cannot be opened", "Check that the server runs")),
        ("nonsense", ("the store's URL cannot be read",)),
    ],
)
def test_a_store_that_cannot_be_opened(untouched: Any, store: str, parts: tuple[str, ...]) -> None:
    done = untouched.run("shout", "--store", store)
    refused(done, *parts)
    assert "secret" not in done.output


def test_a_price_missing_under_a_cap(folder: Any) -> None:
    text = (folder.path / "catalog.yaml").read_text(encoding="utf-8")
    unpriced = "\n".join(line for line in text.splitlines() if "prices" not in line)
    (folder.path / "unpriced.yaml").write_text(unpriced, encoding="utf-8")
    folder.lines(GOOD)
    refused(folder.run("triage", "--catalog", "unpriced.yaml", "--max-cost", "1"), "simulated-small", "price")
    assert folder.names() & {"out.jsonl", "out.jsonl.part"} == set()


@pytest.mark.parametrize("cap", ["much", "-1", "5 euros"])
def test_a_cap_that_is_no_amount(untouched: Any, cap: str) -> None:
    refused(untouched.run("shout", "--max-cost", cap))


def test_an_output_folder_that_is_not_there(untouched: Any) -> None:
    words = ("--input", "in.jsonl", "--output", "none/out.jsonl")
    refused(untouched.call("run", "pipelines_of_test.py:shout", *words), "none/out.jsonl cannot be written")


def test_calls_without_a_store(untouched: Any) -> None:
    refused(untouched.call("calls"), "there is no store sqlite:///interlock.db")


@pytest.mark.parametrize("period", ["yesterday", "1", "h", "1y"])
def test_a_period_that_is_none(untouched: Any, period: str) -> None:
    refused(untouched.call("calls", "--last", period), "is no period", "1h")


def test_the_demo_with_a_catalog_that_cannot_be_called(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(folder.path))
    (folder.path / "anthropic.yaml").write_text(ANTHROPIC, encoding="utf-8")
    before = folder.names()
    done = folder.call("demo", "--json", "--catalog", "anthropic.yaml", "--entries", "3")
    assert done.exit_code == 2
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert done.stdout == ""
    assert folder.names() == before


def test_as_a_process(tmp_path: Path) -> None:
    """The console script's own exit code and streams."""
    code = "from interlock.runtime.cli import main; main()"
    words = [sys.executable, "-c", code, "catalog", "show", "no-such-model"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("interlock: ")
    assert "Traceback" not in done.stderr
    assert json.dumps(sorted(path.name for path in tmp_path.iterdir())) == "[]"


def test_without_any_key_one_sentence_says_which_to_set(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the catalog that ships, which names 27 models for this grade."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    folder.lines(GOOD)
    code = "from interlock.runtime.cli import main; main()"
    words = ["run", "pipelines_of_test.py:triage", "--input", "in.jsonl", "--output", "out.jsonl"]
    environment = {**os.environ, "HOME": str(folder.path)}
    before = folder.names()
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "interlock: no chat model for SMALL can be called: set ANTHROPIC_API_KEY, or set OPENAI_API_KEY, or set "
        "AWS_REGION, or set GEMINI_API_KEY, or name another catalog (--catalog FILE"
    )
    assert folder.names() == before
    (folder.path / "anthropic.yaml").write_text(ANTHROPIC, encoding="utf-8")  # one SDK to load instead of all
    words += ["--catalog", "anthropic.yaml", "--verbose"]
    told = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, env=environment
    )
    assert "model haiku is skipped: credential anthropic-api-key is not set" in told.stderr


def test_a_grade_that_the_catalog_has_not_says_which_it_has(folder: Any) -> None:
    source = (folder.path / "pipelines_of_test.py").read_text(encoding="utf-8")
    large = source.replace('model="no-such-model"', "model=Grade.LARGE").replace("import Conv", "import Grade, Conv")
    (folder.path / "large_of_test.py").write_text(large, encoding="utf-8")
    folder.lines(GOOD)
    words = ("--input", "in.jsonl", "--output", "out.jsonl", "--catalog", "catalog.yaml")
    done = folder.call("run", "large_of_test.py:asks_for_a_stranger", *words)
    refused(done, "has no chat model for LARGE: ask for a grade it has (SMALL)")


def test_the_demo_says_nothing_before_its_catalog_is_read(folder: Any) -> None:
    refused(folder.call("demo", "--catalog", "nosuch.yaml"), "nosuch.yaml: there is no such file")
