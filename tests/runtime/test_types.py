"""mypy and pyright infer what a user relies on: the sample says at each line what is to be revealed there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).parent / "typing_sample" / "sample.py"
MARKED = [(number, line) for number, line in enumerate(SAMPLE.read_text().splitlines(), 1)]
EXPECTED = {number: line.partition("# E: ")[2] for number, line in MARKED if "# E: " in line}
REFUSED = {number for number, line in MARKED if "# error: " in line}


def plain(type_name: str) -> str:
    """A type's name without the modules it comes from."""
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", type_name)


def test_the_sample_asks_for_something() -> None:
    assert len(EXPECTED) >= 20
    assert len(REFUSED) == 2


def test_mypy_infers_results() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(SAMPLE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.findall(r"sample\.py:(\d+): (note|error): (.*)", done.stdout)
    assert found, done.stdout + done.stderr
    revealed = {
        int(number): plain(text.partition('"')[2].rstrip('"'))
        for number, kind, text in found
        if kind == "note" and text.startswith("Revealed type")
    }
    assert revealed == EXPECTED
    assert {int(number) for number, kind, _ in found if kind == "error"} == REFUSED


def test_pyright_infers_results(tmp_path: Path) -> None:
    pyright = Path(sys.executable).with_name("pyright")
    if not pyright.exists() or shutil.which("node") is None:
        pytest.skip("pyright needs node, and one of the two is not on this machine")
    shutil.copy(SAMPLE, tmp_path / "sample.py")
    settings = {"include": ["."], "extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [str(pyright), "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    if not done.stdout.lstrip().startswith("{"):
        pytest.skip(f"pyright could not run here: {done.stderr.strip()[-200:]}")
    found = json.loads(done.stdout)["generalDiagnostics"]
    revealed = {
        item["range"]["start"]["line"] + 1: plain(item["message"].rpartition(' is "')[2].rstrip('"'))
        for item in found
        if item["severity"] == "information"
    }
    assert revealed == EXPECTED
    assert {item["range"]["start"]["line"] + 1 for item in found if item["severity"] == "error"} == REFUSED
