"""A table of calls: what it may say, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.errors import ConfigurationError
from interlock.runtime.plan.table import read_table

from .conftest import MakeCatalog

HEAD = "model,input_tokens,max_output_tokens,output_tokens,count,workflow,priority,latency_s,arrival_s"


def test_a_table_is_read_row_by_row(tmp_path: Path, make_catalog: MakeCatalog) -> None:
    file = tmp_path / "calls.csv"
    file.write_text(f"{HEAD}\nsmall,100,400,50,12,bulk,2,1.5,30\n\nembedder,20,,,,,,,\n", encoding="utf-8")
    found = read_table(file, make_catalog())
    first, second = found.lines
    job, call = first.jobs[0], first.jobs[0].calls[0]
    assert (job.workflow, job.priority, first.arrival_s) == ("bulk", 2, 30.0)
    assert (call.input_tokens, call.output_tokens, call.expected_tokens, call.latency_s) == (100, 400, 50, 1.5)
    assert second.jobs[0].calls[0].output_tokens == 0
    assert found.counts == [12, 1]
    assert found.arrives


def test_json_lines_say_the_same(tmp_path: Path, make_catalog: MakeCatalog) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text(
        '{"model": "small", "input_tokens": 100, "max_output_tokens": 9000, "count": 3, "priority": null}\n'
    )
    found = read_table(file, make_catalog(), limit=2)
    assert found.counts == [2]
    assert found.lines[0].jobs[0].calls[0].output_tokens == 8_000  # the model's own ceiling, as it would be sent


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        (f"{HEAD}\n", "has no rows"),
        ("model,max_output_tokens\nsmall,10\n", "lacks the column input_tokens"),
        ("model,input_tokens,max_output\nsmall,10,10\n", "did you mean max_output_tokens"),
        (f"{HEAD}\nsmal,10,10\n", "row 1: .*small"),
        (f"{HEAD}\nsmall,-5,10\n", "row 1: input_tokens must be from 0"),
        (f"{HEAD}\nsmall,ten,10\n", "input_tokens must be a whole number, not 'ten'"),
        (f"{HEAD}\nsmall,1e3,10\n", "input_tokens must be a whole number"),
        (f"{HEAD}\nsmall,{10**12},10\n", "input_tokens must be from 0 to 100,000,000"),
        (f"{HEAD}\nsmall,10,0\n", "max_output_tokens must be from 1"),
        (f"{HEAD}\nsmall,10,\n", "lacks max_output_tokens"),
        (f"{HEAD}\nsmall,10,10,11\n", "expects 11 output tokens, more than its limit of 10"),
        (f"{HEAD}\nsmall,100000,10\n", "row 1: .*leave no room for an answer"),
        (f"{HEAD}\nsmall,10,10,,-1\n", "count must be from 0"),
        (f"{HEAD}\nsmall,10,10,,{10**10}\n", "count must be from 0 to 1,000,000,000"),
        (f"{HEAD}\nsmall,10,10,,{10**9}\nsmall,10,10,,1\n", "at most 1,000,000,000 can be planned"),
        (f"{HEAD}\nsmall,10,10,,2000000,,,,5\n", "with arrivals; at most 1,000,000"),
        (f"{HEAD}\nsmall,10,10,,,,,nan\n", "latency_s must be from 0"),
        (f"{HEAD}\nsmall,10,10,,,,,,-3\n", "arrival_s must be from 0"),
        (f"{HEAD}\nsmall,10,10,,,,,,,7\n", "1 values more than there are columns"),
        (f"{HEAD}\n" + "small,x,1\n" * 9, "and 4 more"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, make_catalog: MakeCatalog, text: str, words: str) -> None:
    file = tmp_path / "calls.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=words):
        read_table(file, make_catalog())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "row 1: is not JSON"),
        ("[1]", "row 1: is no JSON object"),
        ('{"model": "small", "input_tokens": true, "max_output_tokens": 1}', "input_tokens must be a whole number"),
        ('{"model": "small", "input_tokens": 1, "max_output_tokens": 1, "cout": 3}', "did you mean count"),
        ('{"model": "small", "input_tokens": 1.5, "max_output_tokens": 1}', "not 1.5"),
        ('{"model": "small", "input_tokens": Infinity, "max_output_tokens": 1}', "whole number"),
        ("\n\n", "has no rows"),
    ],
)
def test_what_is_wrong_in_json_lines_is_named(tmp_path: Path, make_catalog: MakeCatalog, text: str, words: str) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=words):
        read_table(file, make_catalog())


def test_files_that_are_no_tables(tmp_path: Path, make_catalog: MakeCatalog) -> None:
    with pytest.raises(ConfigurationError, match=r"a \.csv or a \.jsonl file"):
        read_table(tmp_path / "calls.xlsx", make_catalog())
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_table(tmp_path / "calls.csv", make_catalog())
    (tmp_path / "calls.csv").write_bytes(b"model,input_tokens\n\xff\xfe,1\n")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        read_table(tmp_path / "calls.csv", make_catalog())
