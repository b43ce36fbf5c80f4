"""The input of `interlock run`: ids, bad lines by their numbers, and what fits a pipeline's parameters."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from interlock.errors import ConfigurationError
from interlock.runtime.cli.arguments import Arguments
from interlock.runtime.cli.lines import BadLineError, Line, check, complain, parse, read_lines


class Ticket(BaseModel):
    text: str
    urgent: bool = False


@dataclass(frozen=True)
class Order:
    id: str
    amount: int


class Row(TypedDict):
    text: str


async def takes_ticket(ctx: Any, ticket: Ticket) -> None: ...
async def takes_order(ctx: Any, order: Order) -> None: ...
async def takes_row(ctx: Any, row: Row) -> None: ...
async def takes_text(ctx: Any, text: str) -> None: ...
async def takes_two(ctx: Any, text: str, copies: int = 1) -> None: ...
async def takes_anything(ctx: Any, thing: dict[str, Any]) -> None: ...
async def takes_nothing(ctx: Any) -> None: ...
async def takes_many(ctx: Any, *texts: str) -> None: ...


def write(folder: Path, *lines: str) -> Path:
    path = folder / "in.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def fill(function: Any, value: Any) -> dict[str, Any]:
    return Arguments.of(function, "the pipeline").fill(Line(3, 3, value))


def test_a_line_has_its_own_id_or_its_number(tmp_path: Path) -> None:
    path = write(tmp_path, '{"id": "a", "x": 1}', "", '{"x": 2}', '"text"', '{"id": 7}', '{"id": null}')
    found = [(line.number, line.id) for line in read_lines(path) if isinstance(line, Line)]
    assert found == [(1, "a"), (3, 3), (4, 4), (5, 7), (6, 6)]


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "a"}\r\n{"id": "b"}\r\n')
    assert [line.id for line in read_lines(path) if isinstance(line, Line)] == ["a", "b"]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "not JSON"),
        (b"{'id': 1}", "not JSON"),
        (b'{"x": NaN}', "NaN is no JSON number"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b'{"id": [1]}', "its id is neither text nor a whole number"),
        (b'{"id": true}', "its id is neither text nor a whole number"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_line_is_named_by_its_number(raw: bytes, reason: str) -> None:
    with pytest.raises(BadLineError) as caught:
        parse(12, raw)
    assert str(caught.value).startswith("line 12: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize("number", ["1e999", "-1e400", "9" * 400 + ".5"])
def test_a_number_too_large_for_json_readers_is_a_bad_line(number: str) -> None:
    with pytest.raises(BadLineError, match=r"line 3: not JSON .* is too large a number"):
        parse(3, f'{{"id": 1, "of": [{number}]}}'.encode())


def test_the_whole_input_is_checked(tmp_path: Path) -> None:
    path = write(
        tmp_path, '{"id": "a", "text": "x"}', "oops", '{"id": "a", "text": "y"}', '{"id": "b"}', '{"text": "z"}'
    )
    checked = check(path, Arguments.of(takes_ticket, "p").fill)
    assert checked.good == 2
    assert list(checked.bad) == [2, 3, 4]
    assert checked.bad[3] == "has the id 'a' of line 1"
    assert checked.bad[4] == "text: Field required"


def test_the_complaint_names_the_first_bad_lines_and_counts_the_rest(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        complain(tmp_path / "in.jsonl", dict.fromkeys(range(1, 9), "not JSON"))
    assert "line 5: not JSON; and 3 more" in str(caught.value)


def test_an_input_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.jsonl cannot be read: No such file"):
        list(read_lines(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
    ("function", "value", "filled"),
    [
        (takes_ticket, {"id": 1, "text": "x", "urgent": "yes"}, {"ticket": Ticket(text="x", urgent=True)}),
        (takes_order, {"id": "o1", "amount": "3"}, {"order": Order("o1", 3)}),
        (takes_row, {"id": 1, "text": "x"}, {"row": {"text": "x"}}),
        (takes_text, "bare", {"text": "bare"}),
        (takes_text, {"id": 4, "text": "named"}, {"text": "named"}),
        (takes_two, {"id": 4, "text": "x", "copies": 2}, {"text": "x", "copies": 2}),
        (takes_two, {"text": "x"}, {"text": "x"}),
        (takes_anything, {"id": 1, "x": 2}, {"thing": {"id": 1, "x": 2}}),
    ],
)
def test_a_line_becomes_the_arguments(function: Any, value: Any, filled: dict[str, Any]) -> None:
    assert fill(function, value) == filled


@pytest.mark.parametrize(
    ("function", "value", "reason"),
    [
        (takes_ticket, {"id": 1}, "text: Field required"),
        (takes_ticket, ["x"], "Input should be"),
        (takes_text, 5, "text: Input should be a valid string"),
        (takes_two, {"copies": 2}, "lacks text"),
        (takes_two, {"text": "x", "copy": 2}, "the pipeline has no parameter 'copy'"),
        (takes_two, "x", "must be an object with text, copies"),
    ],
)
def test_what_does_not_fit_says_why(function: Any, value: Any, reason: str) -> None:
    with pytest.raises(BadLineError) as caught:
        fill(function, value)
    assert str(caught.value).startswith("line 3: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize("function", [takes_nothing, takes_many])
def test_a_pipeline_no_line_can_fill(function: Any) -> None:
    with pytest.raises(ConfigurationError, match="the pipeline"):
        Arguments.of(function, "the pipeline")
