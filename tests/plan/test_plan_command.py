"""`interlock plan` as a command: the answer, the JSON, the pictures, and that it leaves nothing behind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from interlock.runtime.cli.app import app
from interlock.runtime.cli.plan import shares
from interlock.runtime.plan import guard

from .conftest import CATALOG

PIPELINE = """\
from interlock import Grade, LLMCall, PipelineContext, pipeline

@pipeline
async def triage(ctx: PipelineContext, text: str) -> str:
    reply = await ctx.run(LLMCall(text, model=Grade.SMALL, max_output_tokens=100))
    return reply.text
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catalog.yaml").write_text(CATALOG.format(limits="tpm: 60000", output="limit"))
    (tmp_path / "planned_triage.py").write_text(PIPELINE)
    (tmp_path / "tickets.jsonl").write_text("".join(json.dumps({"text": f"Ticket {n}"}) + "\n" for n in range(40)))
    (tmp_path / "calls.csv").write_text("model,input_tokens,max_output_tokens,count\nsmall,80,20,2000\n")
    return tmp_path


def plan(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["plan", "--catalog", "catalog.yaml", "--runs", "2", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_a_pipeline_over_its_input(place: Path) -> None:
    before = {file.name for file in place.iterdir()}
    code, out, _ = plan("planned_triage.py:triage", "--input", "tickets.jsonl")
    assert code == 0
    assert out.startswith("Finishes in about ")
    assert "40 lines, 40 calls; 2 simulated runs" in out
    assert "nothing is recorded of small: assumed that an answer takes 25% of its limit" in " ".join(out.split())
    assert {file.name for file in place.iterdir()} - before <= {"__pycache__"}  # no store, no file


def test_json_says_the_same_and_nothing_else(place: Path) -> None:
    code, out, _ = plan("--calls", "calls.csv", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["finish_s"]["p50"] == pytest.approx((2_000 * 85 - 60_000) / 1_000 + 2, rel=0.05)
    assert found["binding"] == "model:small:tokens"
    assert found["worst_cost"]["USD"] == pytest.approx(0.56)
    assert found["cost"]["USD"]["p90"] <= found["worst_cost"]["USD"]
    (tokens,) = [each for each in found["limits"] if each["field"] == "tpm"]
    assert tokens["doubled_saves_s"] > 50
    assert plan("--calls", "calls.csv", "--json")[1] == out


def test_the_sample_is_said(place: Path) -> None:
    code, out, _ = plan("planned_triage.py:triage", "--input", "tickets.jsonl", "--sample", "10", "--limit", "35")
    assert code == 0
    assert "35 lines, 35 calls, 10 of them read" in out


def test_the_cap_is_told(place: Path) -> None:
    _, out, _ = plan("--calls", "calls.csv", "--max-cost", "0.01")
    assert "The cap of 0.0100 USD is reached after about " in out


def test_the_pictures(place: Path) -> None:
    code, _, err = plan("--calls", "calls.csv", "--plot", "levels.png", "--html", "levels.html")
    assert code == 0
    assert "Written: levels.png" in err
    assert (place / "levels.png").read_bytes().startswith(b"\x89PNG")
    page = (place / "levels.html").read_text(encoding="utf-8")
    assert "<title>interlock plan</title>" in page
    assert "Finishes in about" in page
    # Everything is inside: no script, style, picture or font is fetched.
    outside = re.findall(r"<(?:script|link|img|iframe)[^>]*\b(?:src|href)\s*=", page.replace("\\", ""))
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not [each for each in outside if each in own]
    assert "http" not in own.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name a pipeline and its --input, or a table with --calls"),
        (("planned_triage.py:triage",), "--input FILE"),
        (("planned_triage.py:triage", "--calls", "calls.csv"), "name a pipeline and its --input, or"),
        (("--calls", "calls.csv", "--input", "tickets.jsonl"), "leave --input and --configure out"),
        (("--calls", "none.csv"), "none.csv cannot be read: No such file"),
        (("planned_triage.py:triag", "--input", "tickets.jsonl"), "did you mean triage"),
        (("planned_triage.py:triage", "--input", "empty.jsonl"), "empty.jsonl has no lines"),
        (("planned_triage.py:triage", "--input", "bad.jsonl"), "line 2: not JSON"),
        (("--calls", "calls.csv", "--output-share", "1.5"), "--output-share is a share"),
        (("--calls", "calls.csv", "--serves", "0"), "--serves is a share"),
        (("--calls", "calls.csv", "--tokens-per-s", "0"), "--tokens-per-s is above 0"),
        (("--calls", "calls.csv", "--max-cost", "0"), "leaves nothing to spend"),
        (("--calls", "calls.csv", "--plot", "no/such/folder.png"), "the folder no/such does not exist"),
        (("--calls", "calls.csv", "--history", "sqlite:///none.db"), "there is no store"),
    ],
)
def test_what_is_wrong_is_one_sentence(place: Path, words: tuple[str, ...], says: str) -> None:
    (place / "empty.jsonl").write_text("\n")
    (place / "bad.jsonl").write_text('{"text": "a"}\n{\n')
    code, out, err = plan(*words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_bad_lines_may_be_left_out(place: Path) -> None:
    (place / "bad.jsonl").write_text('{"text": "a"}\n{\n')
    code, out, _ = plan("planned_triage.py:triage", "--input", "bad.jsonl", "--skip-bad")
    assert code == 0
    assert "1 bad lines are left out" in out


def test_ctrl_c_is_told_in_one_sentence(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("interlock.runtime.cli.plan.forecast", pressed)
    code, out, err = plan("--calls", "calls.csv")
    assert (code, out) == (130, "")
    assert err == "Stopped. Nothing was sent, and nothing was written.\n"
    assert not guard._GUARD.awake


@pytest.mark.parametrize(("total", "parts"), [(10, 3), (3, 3), (1_000_003, 2_000)])
def test_shares_are_even(total: int, parts: int) -> None:
    found = shares(total, parts)
    assert sum(found) == total
    assert max(found) - min(found) <= 1
