"""The comparison with peers: its arithmetic and its table, on a raw file made by hand. Nothing is run."""

import json
import sys
from itertools import islice
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks stand beside the package, not in it

from benchmarks.admission.peers.figures import figures, load, read, served_rate
from benchmarks.admission.peers.rows import ROWS
from benchmarks.admission.peers.table import BEGIN, END, into_page, table
from benchmarks.admission.peers.workload import LARGE_EVERY, calls, index_of

RAW = Path(__file__).parent / "peers_raw.json"


@pytest.fixture
def said():
    return json.loads(RAW.read_text(encoding="utf-8"))


def test_goodput_is_what_was_charged_in_the_window_of_what_was_refilled_in_it(said):
    found = figures(read(said))
    assert found.goodput == pytest.approx((297 + 127 + 610 + 30 + 12_000) / 20_000)  # the last answer ends too late
    assert found.also == pytest.approx((456 + 46) / 10_000)  # half the rate before the step
    assert found.whole == pytest.approx((456 + 46 + 297 + 127 + 610 + 30 + 12_000) / (15_000 + 30_000))


def test_refusals_are_counted_over_the_whole_row(said):
    found = figures(read(said))
    assert (found.sent, found.refused, found.overloaded, found.served, found.gave_up) == (6, 1, 1, 4, 1)
    assert found.refused_share == pytest.approx(1 / 6)
    assert found.refused_late == 0.0
    assert found.cpu_ms == pytest.approx(10.0)


def test_a_refusal_in_the_window_is_counted_there_too(said):
    said["requests"].append([3, 39.0, 39.01, 429, 100, 0])
    found = figures(read(said))
    assert (found.refused, found.refused_late) == (2, pytest.approx(1 / 5))


def test_a_wait_ends_when_the_request_that_was_served_arrives(said):
    found = figures(read(said))
    assert (found.p50_s, found.p99_s) == (20.5, 37.5)  # 3.5, 20.5 and 37.5 s; the first call was before the window


def test_a_large_call_is_held_against_its_fair_turn(said):
    found = figures(read(said))
    assert (found.large_s, found.large_open) == (37.5, False)
    assert found.turns == pytest.approx(37.5)  # the burst had room for it at once, and at once counts as a second


def test_a_large_call_that_was_never_served_has_waited_until_the_end(said):
    said["requests"].pop()
    found = figures(read(said))
    assert (found.large_s, found.large_open, found.turns) == (38.0, True, pytest.approx(38.0))


def test_a_large_call_whose_turn_had_not_come_is_no_starved_one(said):
    said["requests"].pop()
    said["row"]["burst_s"] = 1.0
    said["row"]["shares"] = [[0.0, 0.05], [20.0, 0.1]]
    assert figures(read(said)).large_s is None


def test_served_rate_sums_up_to_what_was_served(said):
    assert sum(served_rate(read(said), 5.0)) * 5 == 502 + 424 + 640 + 12_000


def test_the_table_names_versions_limits_and_what_cannot_be_said(said, tmp_path):
    (tmp_path / "step").mkdir()
    (tmp_path / "step" / "aiolimiter.json").write_text(json.dumps(said), encoding="utf-8")
    text = table(load(tmp_path))
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("|")]
    assert dict(zip(lines[0], lines[2], strict=True)) == {
        "| ": "| aiolimiter (1)", "goodput": "0.65", "before it": "0.05", "whole row": "0.30", "429s": "1",
        "of its requests": "16.7%", "in the window": "0.0%", "wait p50": "20.5 s", "wait p99": "37.5 s",
        "longest wait of a large call": "37.5 s", "given up": "1", "CPU a call |": "10.0 ms |",
    }  # fmt: skip
    assert "aiolimiter 1.3.0" in text
    assert "(1) aiolimiter: it cannot give back" in text
    assert "load average 0.6" in text


def test_the_table_goes_between_its_marks_and_nowhere_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    into_page(page, "new")
    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="has no"):
        into_page(page, "new")


def test_everybody_is_asked_the_same():
    first, again = list(islice(calls(3), 500)), list(islice(calls(3), 500))
    assert first == again
    assert [call.index for call in first] == list(range(500))
    assert sum(call.is_large for call in first) == 500 // LARGE_EVERY
    assert all(len(call.text) == call.input_tokens * 4 and index_of(call.text) == call.index for call in first)


def test_a_row_says_what_could_be_served():
    step = ROWS["step"]
    assert step.could_serve(100, 140) == pytest.approx(step.tpm / 60 * (20 * 0.3 + 20 * 1.0))
    assert ROWS["50-30"].lasting(2).until_s == 120
    assert step.lasting(2) == step


def test_with_many_callers_the_hungry_run_alone():
    names = ["interlock", "infermesh", "aiolimiter", "sdk", "sdk-20"]
    hungry = {"sdk", "infermesh"}
    assert ROWS["500-30"].heats(names, hungry) == [["interlock", "aiolimiter"], ["infermesh"], ["sdk"]]
    assert ROWS["500-30"].heats(["sdk"], hungry) == [["sdk"]]
    assert ROWS["50-30"].heats(names, hungry) == [names]
    assert ROWS["50-30"].heats([], hungry) == []
