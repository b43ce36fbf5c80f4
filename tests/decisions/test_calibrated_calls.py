"""A temperature that was fitted, applied by the Runtime: in the answer beside what was said, and in the record."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from interlock import ModelSettings
from interlock.clients.simulator import SimulatedProvider
from interlock.decisions import Calibration, Choice, Noul, Score
from interlock.decisions.calibration import FittedTemperature, fingerprint
from interlock.decisions.temperature import scaled
from interlock.errors import ConfigurationError
from interlock.runtime import Runtime, RuntimeSettings

from .test_batch import settings

QUESTIONS: dict[str, Any] = {
    "team": Choice.of("Which team?", "billing", "sales"),
    "urgent": Noul.of("Is it urgent?"),
    "anger": Score.of("How cross?", "calm", "cross", "angry"),
    "plain": Noul.of("Is it plain?"),
}


def fitted(name: str, temperature: float, **fields: Any) -> FittedTemperature:
    known: dict[str, Any] = {
        "model": "decider", "wire_model_id": "a-model", "question": name, "fingerprint": fingerprint(QUESTIONS[name]),
        "examples": 100, "log_loss": 0.7, "fitted_log_loss": 0.5, "fitted_at": "2026-11-30",
    }  # fmt: skip
    return FittedTemperature(temperature=temperature, **{**known, **fields})


CALIBRATION = Calibration(
    (
        fitted("team", 2.0),
        fitted("urgent", 0.5),
        fitted("anger", 3.0),
        fitted("plain", 4.0, model="another"),
        fitted("plain", 4.0, wire_model_id="another-version"),
    )
)


def calibrated(
    provider: SimulatedProvider, store: str | None = None, key: str = "systemone-decision"
) -> RuntimeSettings:
    return replace(settings(provider, key), models=ModelSettings(calibration=CALIBRATION), store=store)


@pytest.mark.parametrize("key", ["systemone-decision", "logprobs-decision"])
async def test_it_is_applied_and_the_raw_probability_is_kept_beside_it(
    provider: SimulatedProvider, tmp_path: Path, key: str
) -> None:
    async with Runtime(settings(provider, key)) as runtime:
        raw = await runtime.decisions().decide("Charged twice", QUESTIONS)
    async with Runtime(calibrated(provider, f"sqlite:///{tmp_path / 'calls.db'}", key)) as runtime:
        response = await runtime.decisions().decide("Charged twice", QUESTIONS)
        rows = await runtime.calls()
    team, said = response.choice("team"), raw.choice("team")
    assert (team.temperature, team.raw_probabilities) == (2.0, pytest.approx(said.probabilities))
    assert tuple(team.probabilities.values()) == pytest.approx(scaled(tuple(said.probabilities.values()), 2.0))
    assert team.choice == said.choice
    assert team.confidence < said.confidence
    urgent = response.noul("urgent")
    assert (urgent.temperature, urgent.raw_noul) == (0.5, pytest.approx(raw.noul("urgent").noul))
    assert response.score("anger").raw_probabilities == pytest.approx(raw.score("anger").probabilities)
    assert response.answers["plain"] == raw.answers["plain"]
    assert response.noul("plain").temperature is None
    recorded: dict[str, Any] = {}
    for row in rows:
        recorded |= row.record.decision or {}
    assert set(recorded) == {"team", "urgent", "anger"}
    assert (recorded["team"]["temperature"], recorded["urgent"]["temperature"]) == (2.0, 0.5)
    if key == "systemone-decision":
        assert recorded["team"]["raw"] == dict(said.probabilities)
        assert recorded["team"]["probabilities"] == pytest.approx(dict(team.probabilities))
        assert recorded["urgent"]["raw"] == raw.noul("urgent").noul


async def test_without_a_temperature_nothing_of_the_answer_is_recorded(provider: SimulatedProvider) -> None:
    async with Runtime(settings(provider)) as runtime:
        await runtime.decisions().decide("Charged twice", QUESTIONS)
        (row,) = await runtime.calls()
    assert row.record.decision is None
    assert row.record.text is None


async def test_where_text_is_kept_the_answers_are(provider: SimulatedProvider) -> None:
    async with Runtime(replace(settings(provider), keep_text=True)) as runtime:
        response = await runtime.decisions().decide("Charged twice", QUESTIONS)
        (row,) = await runtime.calls()
    assert row.record.text is not None
    assert json.loads(row.record.text)["team"]["probabilities"] == dict(response.choice("team").probabilities)


async def test_a_calibration_may_be_a_file_and_one_that_is_none_stops_the_start(
    provider: SimulatedProvider, tmp_path: Path
) -> None:
    file = tmp_path / "fitted.json"
    CALIBRATION.save(file)
    models = ModelSettings(calibration=file)
    async with Runtime(replace(settings(provider), models=models)) as runtime:
        response = await runtime.decisions().decide("Charged twice", QUESTIONS)
    assert response.choice("team").temperature == 2.0
    file.write_text("{}")
    with pytest.raises(ConfigurationError, match=r"fitted\.json is no calibration"):
        async with Runtime(replace(settings(provider), models=models)):
            pass
