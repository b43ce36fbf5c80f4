"""`interlock decisions eval` against a provider on loopback: asked once, kept, measured, fitted, applied, recorded."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from interlock.clients.simulator import SeenRequest, SimulatedProvider, Step
from interlock.decisions import Calibration
from interlock.runtime.cli.app import app
from interlock.runtime.cli.decisions import EvalOptions

QUESTIONS = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "invoices", "sales": None}},
    "urgent": {"type": "noul", "instructions": "Is it urgent?"},
    "anger": {"type": "score", "instructions": "How cross?", "criteria": ["calm", "cross", "angry"]},
}
CATALOG = """
providers:
  systemone-decision: {{credential: typesafe-api-key, base_url: "{url}"}}
models:
  - id: decider
    kind: decision
    provider: systemone-decision
    wire_model_id: jev-latest
    limits: {{rpm: 600000, tpm: 600000000}}
    prices: {{currency: USD, per: 1000000, input: 1.00}}
pins: {{decision: [decider]}}
"""
CONFIGURE = """
from dataclasses import replace
from interlock import ModelSettings
def calibrated(settings):
    return replace(settings, models=ModelSettings(calibration="fitted.json"))
"""


def said(request: SeenRequest) -> Any:
    """A model that is far too sure: 0.95 where it is right three times in four."""
    number = int(str(request.ask.decision.state).split()[-1])  # type: ignore[union-attr]
    wrong = number % 4 == 0
    team = "sales" if (number % 2 == 0) != wrong else "billing"
    sure = {"billing": 0.05, "sales": 0.95} if team == "sales" else {"billing": 0.95, "sales": 0.05}
    return {"team": sure, "urgent": 0.95 if (number % 2 == 0) != wrong else 0.05, "anger": [0.2, 0.6, 0.2]}


@dataclass
class Desk:
    path: Path
    provider: SimulatedProvider

    def labelled(self, count: int = 40, **first: Any) -> None:
        lines = [
            {
                "id": f"t{number}",
                "state": f"ticket {number}",
                "labels": {"team": "sales" if number % 2 == 0 else "billing", "urgent": number % 2 == 0, "anger": 1},
            }
            for number in range(count)
        ]
        lines[0] = {**lines[0], "questions": QUESTIONS, **first}
        self.write("labelled.jsonl", *lines)

    def write(self, name: str, *lines: Any) -> None:
        (self.path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    def call(self, *words: str) -> Result:
        given = ["--input", "labelled.jsonl", "--catalog", "catalog.yaml"]
        return CliRunner().invoke(app, ["decisions", "eval", *given, *words])

    def figures(self, *words: str) -> dict[str, Any]:
        result = self.call("--json", *words)
        assert result.exit_code == 0, result.stderr
        return {each["question"]: each for each in json.loads(result.stdout)["questions"]}

    def answers(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "labelled.answers.jsonl").read_text().splitlines()]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TYPESAFE_API_KEY", "tsk-0123456789")
    with SimulatedProvider(answer=said).in_thread() as provider:
        (tmp_path / "catalog.yaml").write_text(CATALOG.format(url=provider.systemone_url))
        yield Desk(tmp_path, provider)


def test_every_question_is_measured_and_asked_in_one_request_a_line(desk: Desk) -> None:
    desk.labelled()
    result = desk.call("--precision", "0.8")
    assert result.exit_code == 0, result.stderr
    assert desk.provider.count == 40
    for word in ("Answers against labels", "team", "urgent", "anger", "75.0%", "never", "calibration error"):
        assert word in result.stdout
    assert "40 of 40 lines done" in result.stderr
    figures = desk.figures("--resume", "--precision", "0.7")
    team, urgent, anger = figures["team"], figures["urgent"], figures["anger"]
    assert (team["examples"], team["accuracy"], team["majority"]) == (40, 0.75, 0.5)
    assert team["raw"]["calibration_error"] == pytest.approx(0.2)
    assert team["raw"]["threshold"]["covered"] == 1.0
    assert urgent["raw"]["threshold"]["value"] == 0.95
    assert anger["accuracy"] == 1.0
    assert anger["raw"]["calibration_error"] == pytest.approx(0.4)


def test_what_is_answered_is_never_asked_again(desk: Desk) -> None:
    desk.labelled(10)
    desk.provider.script(*(Step.answer() for _ in range(4)), Step.status(400, {"detail": "no"}))
    result = desk.call("--concurrency", "1", "--limit", "6")
    assert result.exit_code == 1
    assert "lines are left. Go on with: interlock decisions eval --input labelled.jsonl" in result.stderr
    assert desk.provider.count == 6
    assert desk.call().exit_code == 2  # the answers are there already
    assert desk.provider.count == 6
    assert desk.call("--resume").exit_code == 0
    assert desk.provider.count == 6 + 5
    assert [line["id"] for line in desk.answers()] == [f"t{number}" for number in range(10)]
    assert desk.figures("--resume")["team"]["examples"] == 10
    assert desk.provider.count == 6 + 5


def test_a_temperature_is_fitted_kept_applied_and_the_raw_probability_stays(desk: Desk) -> None:
    desk.labelled()
    figures = desk.figures("--fit", "fitted.json")
    team = figures["team"]
    assert team["fitted"]["calibration_error"] < 0.1 < team["raw"]["calibration_error"]
    assert team["fitted"]["log_loss"] < team["raw"]["log_loss"]
    calibration = Calibration.load("fitted.json")
    assert [each.question for each in calibration.fitted] == ["team", "urgent"]
    assert "fitted" not in figures["anger"]
    assert figures["anger"]["notes"] == [
        "no temperature was fitted: all is right however sure it is, so examples that are wrong are what is lacking"
    ]
    assert {each.examples for each in calibration.fitted} == {40}
    temperature = calibration.fitted[0].temperature
    assert temperature == pytest.approx(team["fitted"]["temperature"])
    assert temperature > 1.5
    (desk.path / "settings_of_test.py").write_text(CONFIGURE)
    words = ("--output", "again.jsonl", "--configure", "settings_of_test.py:calibrated", "--fit", "fitted.json")
    again = desk.figures(*words)["team"]
    assert again["raw"] == team["raw"]
    assert again["applied"]["temperature"] == temperature
    assert again["applied"]["calibration_error"] < 0.05
    lines = [json.loads(line) for line in (desk.path / "again.jsonl").read_text().splitlines()]
    answer = lines[0]["output"]["answers"]["team"]
    assert answer["temperature"] == temperature
    assert answer["raw"] == {"billing": 0.95, "sales": 0.05}
    assert max(answer["probabilities"].values()) == pytest.approx(0.75, abs=0.03)
    assert len(Calibration.load("fitted.json").fitted) == 2


def test_diagrams_are_drawn(desk: Desk) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("plotly")
    desk.labelled(24)
    assert desk.call("--fit", "fitted.json", "--plot", "out.png", "--html", "out.html").exit_code == 0
    assert (desk.path / "out.png").read_bytes().startswith(b"\x89PNG")
    page = (desk.path / "out.html").read_text()
    assert "as the model says" in page
    assert "fitted, T = " in page
    assert "src=" not in page.partition("</script>")[2]
    result = desk.call("--resume", "--plot", "no/folder.png")
    assert result.exit_code == 2
    assert "no/folder.png cannot be written: the folder no does not exist" in result.stderr


@pytest.mark.parametrize(("option", "library"), [("--plot", "matplotlib"), ("--html", "plotly")])
def test_what_draws_and_is_not_installed_is_said_before_anything_is_asked(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, option: str, library: str
) -> None:
    monkeypatch.setattr("interlock.runtime.cli.places.find_spec", lambda name: None)
    desk.labelled(4)
    result = desk.call(option, "out.it")
    assert result.exit_code == 2
    assert f"{option} needs {library}: pip install 'interlock[plot]'" in result.stderr
    assert not desk.provider.requests


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_keeps_what_was_answered_and_fits_nothing(desk: Desk, presses: int) -> None:
    desk.labelled(30)
    seen = 0

    def pressing(request: SeenRequest) -> Any:
        nonlocal seen
        seen += 1
        if seen == 6:
            for _ in range(presses):
                os.kill(os.getpid(), signal.SIGINT)
        return said(request)

    desk.provider._serving.answer = pressing
    result = desk.call("--fit", "fitted.json", "--concurrency", "1")
    assert result.exit_code == 130
    assert "Stopped by Ctrl-C" in result.stderr
    assert "fitted.json is as it was: not all that was to be asked is answered, but " in result.stderr
    assert not (desk.path / "fitted.json").exists()
    kept = len(desk.answers())
    assert 5 <= kept < 30
    desk.provider._serving.answer = said
    assert desk.figures("--resume")["team"]["examples"] == 30
    assert desk.provider.count <= seen + 30 - kept


def test_what_is_not_whole_is_measured_and_nothing_is_fitted_to_it(desk: Desk) -> None:
    desk.labelled(25)
    desk.provider.script(Step.status(400, {"detail": "no"}))
    result = desk.call("--limit", "24", "--fit", "fitted.json")
    assert (result.exit_code, "fitted, T" in result.stdout) == (1, False)
    assert not (desk.path / "fitted.json").exists()
    desk.labelled(20)
    result = desk.call("--resume", "--fit", "fitted.json")
    assert (result.exit_code, desk.provider.count) == (2, 24)
    assert "no line has the id 't20'" in result.stderr
    desk.labelled(25)
    assert "fitted" in desk.figures("--resume", "--limit", "1", "--fit", "fitted.json")["team"]


def test_what_a_part_of_the_examples_was_fitted_to_is_said(desk: Desk) -> None:
    desk.labelled(60)
    first = desk.call("--limit", "24", "--fit", "fitted.json")
    assert first.exit_code == 0
    assert "Fitted to the answers there are, 24 of 60 examples: team, urgent. fitted.json has 2:" in first.stderr
    whole = desk.call("--resume", "--limit", "16", "--fit", "fitted.json")
    assert "40 of 60 examples: team, urgent. fitted.json has 2:" in whole.stderr
    assert [each.examples for each in Calibration.load("fitted.json").fitted] == [40, 40]
    assert desk.provider.count == 40


def test_a_temperature_that_stays_from_before_is_told_apart(desk: Desk) -> None:
    """Of what was fitted before, one question now has examples that no temperature is best for."""
    desk.labelled(40)
    assert desk.call("--fit", "fitted.json").exit_code == 0
    known = {each.question: each.temperature for each in Calibration.load("fitted.json").fitted}
    lines = [json.loads(line) for line in (desk.path / "labelled.jsonl").read_text().splitlines()]
    for line in lines:
        number = int(line["id"][1:])
        line["labels"]["urgent"] = (number % 2 == 0) != (number % 4 == 0)  # as it is answered: all is right
    desk.write("labelled.jsonl", *lines)
    result = desk.call("--resume", "--fit", "fitted.json")
    stays = f"Of what was fitted before there stay: urgent (T = {known['urgent']:g})."
    assert f"40 of 40 examples: team. {stays} fitted.json has 2:" in result.stderr
    assert desk.provider.count == 40


def test_a_cap_stops_and_says_how_to_go_on(desk: Desk) -> None:
    desk.labelled(30)
    result = desk.call("--max-cost", "0.001", "--concurrency", "1")
    assert result.exit_code == 1
    assert "Stopped at the cost cap" in result.stderr
    assert 0 < len([line for line in desk.answers() if "output" in line]) < 30


def test_what_is_wrong_names_the_file_and_the_line_and_sends_nothing(desk: Desk) -> None:
    desk.labelled(3)
    good = (desk.path / "labelled.jsonl").read_text()
    (desk.path / "labelled.jsonl").write_text(
        good
        + '{"state": "my card 4111 1111 1111", "labels": {"team": "legal"}}\nnot json\n'
        + '{"state": "x", "labels": {"urgent": 1}}\n'
    )
    result = desk.call()
    assert result.exit_code == 2
    assert "labelled.jsonl: line 4: the label of 'team' must be one of its options" in result.stderr
    assert "line 5: not JSON" in result.stderr
    assert "line 6: the label of 'urgent' must be true or false" in result.stderr
    assert "4111 1111" not in result.stderr
    assert desk.provider.count == 0
    assert desk.call("--skip-bad").exit_code == 0
    assert desk.figures("--resume", "--skip-bad")["team"]["examples"] == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--precision", "1.5"), "--precision is a share above 0 and at most 1"),
        (("--fit", "labelled.jsonl"), "labelled.jsonl is the input itself"),
        (("--output", "labelled.jsonl"), "labelled.jsonl is the input itself"),
        (("--fit", "catalog.yaml"), "catalog.yaml is the catalog itself"),
        (("--questions", "none.yaml"), "none.yaml cannot be read"),
        (("--questions", "catalog.yaml"), "catalog.yaml: question 'providers': "),
        (("--model", "nothing"), "no model 'nothing'|nothing"),
        (("--max-cost", "0"), "--max-cost 0"),
        (("--plot", "out.txt"), "--plot out.txt: no picture is of that kind; there are"),
    ],
)
def test_a_wrong_set_up_is_one_sentence_and_sends_nothing(desk: Desk, words: tuple[str, ...], why: str) -> None:
    desk.labelled(3)
    result = desk.call(*words)
    assert result.exit_code == 2, result.stdout
    assert result.stderr.startswith("interlock: ")
    assert any(each in result.stderr for each in why.split("|"))
    assert desk.provider.count == 0
    assert not (desk.path / "labelled.answers.jsonl").exists()


@pytest.mark.parametrize("name", ["questions.json", "questions.yaml"])
def test_questions_may_stand_in_a_file(desk: Desk, name: str) -> None:
    desk.labelled(3)
    lines = [json.loads(line) for line in (desk.path / "labelled.jsonl").read_text().splitlines()]
    del lines[0]["questions"]
    desk.write("labelled.jsonl", *lines)
    assert "no questions are known yet" in desk.call().stderr
    (desk.path / name).write_text(json.dumps(QUESTIONS))
    result = desk.call("--questions", name, "--fit", "fitted.json")
    assert result.exit_code == 2
    assert "nothing was fitted: a question needs 20 examples" in result.stderr
    assert "3 examples are few" in result.stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("questions.json", '{"team": {"type": "choice", "instructions": "?", "criteria": {"a": null, "a": "x"}}}'),
        ("questions.yaml", "team: {type: choice, instructions: '?', criteria: {a: null, b: null, a: x}}"),
        ("questions.yaml", "a: {type: noul, instructions: '?'}\na: {type: noul, instructions: '!'}"),
    ],
)
def test_of_two_questions_or_options_of_one_name_none_is_lost_unseen(desk: Desk, name: str, text: str) -> None:
    desk.labelled(1)
    (desk.path / name).write_text(text)
    result = desk.call("--questions", name)
    assert (result.exit_code, desk.provider.count) == (2, 0)
    assert f"{name}: the key 'a' stands twice in one object" in result.stderr


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"questions": {**QUESTIONS, "team": {**QUESTIONS["team"], "instructions": "Which floor?"}}}, "has changed"),
        ({"questions": {**QUESTIONS, "anger": {**QUESTIONS["anger"], "criteria": ["calm", "cross"]}}}, "has changed"),
        ({"state": "ticket 7"}, "has changed"),
    ],
)
def test_an_answer_is_no_answer_to_another_question(desk: Desk, change: dict[str, Any], told: str) -> None:
    desk.labelled(22)
    assert desk.call().exit_code == 0
    desk.labelled(22, **change)
    result = desk.call("--resume", "--fit", "fitted.json")
    assert (result.exit_code, desk.provider.count) == (2, 22)
    assert told in result.stderr
    assert not (desk.path / "fitted.json").exists()


def test_a_label_may_be_corrected_and_another_model_is_not_shown_these_figures(desk: Desk) -> None:
    desk.labelled(4)
    assert desk.call("--model", "decider").exit_code == 0
    desk.labelled(4, labels={"team": "billing", "urgent": False, "anger": 0})
    assert desk.figures("--resume")["anger"]["accuracy"] == 0.75
    result = desk.call("--resume", "--model", "another")
    assert (result.exit_code, "is by decider, and another is asked now" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "output",
    [
        None,
        5,
        {"asked": None},
        {"model": ["decider"]},
        {"answers": []},
        {"answers": {"team": {}}},
        {
            "answers": {
                "team": {"probabilities": {"billing": 0.5, "sales": 0.5}, "choice": "legal"},
                "urgent": {"noul": 0.5},
                "anger": {"probabilities": [0.2, 0.6, 0.2]},
            }
        },
        {"answers": {"team": {"probabilities": [1]}, "urgent": {"noul": 2}, "anger": {"probabilities": "x"}}},
    ],
)
def test_answers_that_somebody_wrote_into_the_file_are_refused(desk: Desk, output: Any) -> None:
    desk.labelled(2)
    assert desk.call().exit_code == 0
    first, second = desk.answers()
    first["output"] = {**first["output"], **output} if isinstance(output, dict) else output
    desk.write("labelled.answers.jsonl", first, second)
    result = desk.call("--resume")
    assert result.exit_code == 2
    assert result.stderr.startswith("interlock: labelled.answers.jsonl: what is kept of 't0' ")


def test_each_wording_of_a_question_has_figures_of_its_own(desk: Desk) -> None:
    desk.labelled(4)
    lines = [json.loads(line) for line in (desk.path / "labelled.jsonl").read_text().splitlines()]
    lines[3]["questions"] = {"team": {**QUESTIONS["team"], "instructions": "Which floor?"}}
    lines[3]["labels"] = {"team": "billing"}
    desk.write("labelled.jsonl", *lines)
    told = json.loads(desk.call("--json").stdout)["questions"]
    assert [each["examples"] for each in told if each["question"] == "team"] == [3, 1]


@pytest.mark.parametrize("flag", ["--html", "--plot", "--fit", "--output"])
@pytest.mark.parametrize("file", ["labelled.jsonl", "catalog.yaml", "questions.json", "labelled.answers.jsonl"])
def test_no_figure_is_written_over_a_file_that_is_read(desk: Desk, flag: str, file: str) -> None:
    desk.labelled(2)
    desk.write("questions.json", QUESTIONS)
    assert desk.call().exit_code == 0
    if (flag, file) == ("--output", "labelled.answers.jsonl"):
        return
    before = (desk.path / file).read_bytes()
    result = desk.call("--resume", "--questions", "questions.json", flag, file)
    assert (result.exit_code, "name" in result.stderr) == (2, True), result.stderr
    assert (desk.path / file).read_bytes() == before


def test_names_are_no_markup_and_no_formula(desk: Desk) -> None:
    pytest.importorskip("matplotlib")
    name = "[/bold] $x^{ \x1b[31m"
    desk.labelled(1, questions={name: QUESTIONS["urgent"]}, labels={name: True})
    desk.provider._serving.answer = lambda request: {name: 0.9}
    result = desk.call("--plot", "out.png")
    assert result.exit_code == 0, result.stderr
    assert "[/bold] $x^{ ?[31m" in result.stdout


def test_the_command_that_goes_on_shows_no_password() -> None:
    options = EvalOptions(input=Path("in.jsonl"), output=Path("out.jsonl"), store="postgresql://me:hunter2@there/docs")
    assert "postgresql://me:***@there/docs" in options.again()
