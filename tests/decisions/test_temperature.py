"""Temperatures: what they change and what never changes; the file they are kept in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interlock.decisions import Calibration, Choice, ChoiceAnswer, Noul, NoulAnswer, Score, ScoreAnswer
from interlock.decisions.calibration import FittedTemperature, fingerprint
from interlock.decisions.formulas import choice_confidence
from interlock.decisions.recorded import plain
from interlock.decisions.temperature import calibrated, scaled
from interlock.errors import ConfigurationError

TEMPERATURES = st.floats(0.05, 20)


def distributions(least: int = 2, most: int = 8) -> st.SearchStrategy[list[float]]:
    weights = st.lists(st.floats(0, 1), min_size=least, max_size=most).filter(lambda found: sum(found) > 1e-3)
    return weights.map(lambda found: [weight / sum(found) for weight in found])


@given(distributions(), TEMPERATURES)
def test_a_temperature_makes_a_distribution_and_keeps_its_order(p: list[float], temperature: float) -> None:
    q = scaled(p, temperature)
    assert sum(q) == pytest.approx(1)
    assert all(0 <= each <= 1 for each in q)
    for one in range(len(p)):
        for other in range(len(p)):
            if p[one] > p[other]:
                assert q[one] >= q[other]


@given(distributions(), st.floats(1.0, 20))
def test_above_1_it_is_less_sure_and_below_it_surer(p: list[float], temperature: float) -> None:
    assert choice_confidence(scaled(p, temperature)) <= choice_confidence(p) + 1e-6
    assert choice_confidence(scaled(p, 1 / temperature)) >= choice_confidence(p) - 1e-3  # a 0 counts as 0.0001


@given(distributions(3, 3), TEMPERATURES)
def test_a_choice_keeps_its_winner_and_what_was_said(p: list[float], temperature: float) -> None:
    said = dict(zip("abc", p, strict=True))
    answer = ChoiceAnswer(choice=max(said, key=lambda name: said[name]), probabilities=said)
    made: Any = calibrated(answer, temperature)
    assert made.choice == answer.choice
    assert made.probabilities[made.choice] == max(made.probabilities.values())
    assert (made.raw_probabilities, made.temperature) == (said, temperature)


@given(st.floats(0, 1), TEMPERATURES)
def test_a_noul_stays_on_its_side(p: float, temperature: float) -> None:
    made: Any = calibrated(NoulAnswer(noul=p), temperature)
    assert made.raw_noul == p
    assert (made.noul > 0.5) == (p > 0.5) or made.noul == pytest.approx(0.5)


@given(distributions(4, 4), TEMPERATURES)
def test_a_score_keeps_its_level_and_is_the_expectation(p: list[float], temperature: float) -> None:
    answer = ScoreAnswer(score=1.0, probabilities=tuple(p), levels=("a", "b", "c", "d"))
    made: Any = calibrated(answer, temperature)
    assert made.score == pytest.approx(sum(at * each for at, each in enumerate(made.probabilities)))
    assert made.probabilities[answer.level] == max(made.probabilities)
    assert (made.raw_score, made.raw_probabilities) == (1.0, tuple(p))


@pytest.mark.parametrize("method", ["stated", "logprobs"])
def test_where_a_distribution_comes_from_is_kept_with_it(method: Any) -> None:
    answer = NoulAnswer(noul=0.9, method=method)
    assert plain(answer) == {"type": "noul", "noul": 0.9, "method": method}
    assert plain(calibrated(answer, 2.0)) == {
        "type": "noul", "noul": pytest.approx(0.75), "method": method, "temperature": 2.0, "raw": 0.9,
    }  # fmt: skip
    assert "method" not in plain(NoulAnswer(noul=0.9))


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_temperature_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        scaled([0.5, 0.5], temperature)


def test_a_question_is_known_by_what_it_asks() -> None:
    asked = Choice.of("Which team?", {"billing": "invoices", "sales": None})
    assert fingerprint(asked) == fingerprint(Choice.of("Which team?", {"billing": "invoices", "sales": None}))
    others = [
        Choice.of("Which team?", "billing", "sales"),
        Choice.of("Which team?", {"sales": None, "billing": "invoices"}),
        Noul.of("Which team?"),
        Score.of("Which team?", "billing", "sales"),
    ]
    assert len({fingerprint(each) for each in (asked, *others)}) == 5


def fitted(**fields: Any) -> FittedTemperature:
    known: dict[str, Any] = {
        "model": "m", "wire_model_id": "w", "question": "q", "fingerprint": "f", "temperature": 1.5, "examples": 100,
        "log_loss": 0.7, "fitted_log_loss": 0.5, "fitted_at": "2026-11-30",
    }  # fmt: skip
    return FittedTemperature(**{**known, **fields})


def test_a_file_holds_every_model_and_question_and_a_new_fit_replaces_its_own(tmp_path: Path) -> None:
    file = tmp_path / "fitted.json"
    Calibration((fitted(), fitted(model="other"))).save(file)
    again = Calibration.load(file)
    assert again.fitted == (fitted(), fitted(model="other"))
    merged = again.plus([fitted(temperature=2.0), fitted(fingerprint="g")])
    assert merged.temperatures == {("m", "w", "f"): 2.0, ("other", "w", "f"): 1.5, ("m", "w", "g"): 1.5}
    merged.save(file)
    assert Calibration.load(file) == merged
    assert [path.name for path in tmp_path.iterdir()] == ["fitted.json"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("not json", "is no JSON"),
        ("[]", "is no calibration of version 1"),
        ('{"version": 2, "temperatures": []}', "is no calibration of version 1"),
        ('{"version": 1, "temperatures": [3]}', "temperature 1 of .* is no object"),
        ('{"version": 1, "temperatures": [{"model": 3}]}', "temperature 1 of .*: model is missing or no str"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, body: str, why: str) -> None:
    file = tmp_path / "fitted.json"
    file.write_text(body)
    with pytest.raises(ConfigurationError, match=why) as caught:
        Calibration.load(file)
    assert "fitted.json" in str(caught.value)


@pytest.mark.parametrize("temperature", [0, -1, "1.5", True, None, 5e-324, 10**400, 1e400])
def test_a_temperature_that_is_none_is_named(tmp_path: Path, temperature: Any) -> None:
    file = tmp_path / "fitted.json"
    Calibration((fitted(), fitted(model="b"))).save(file)
    body = json.loads(file.read_text())
    body["temperatures"][1]["temperature"] = temperature
    file.write_text(json.dumps(body))
    with pytest.raises(ConfigurationError, match="temperature 2 of"):
        Calibration.load(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        Calibration.load(tmp_path / "none.json")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        Calibration((fitted(),)).save(tmp_path / "no" / "folder.json")
