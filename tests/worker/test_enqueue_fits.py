"""What is put into the queue is what its pipeline can be called with."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, Field
from worker import queued_work as work
from worker.test_worker import run_until_empty, settings

from interlock import PipelineContext, Runtime, pipeline
from interlock.errors import ConfigurationError
from interlock.runtime.worker.fitting import check_fits

T = TypeVar("T")


class Color(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Array:
    values: NDArray[np.float32]


class Ticket(BaseModel):
    number: int


class Box(BaseModel, Generic[T]):
    content: T


class Spoken(Protocol):
    def speak(self) -> str: ...


ONES = np.ones(2, np.float32)
NOW = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)


def called_with(wanted: Any, value: Any) -> Any:
    async def takes(ctx: PipelineContext, given: Any) -> None: ...

    takes.__annotations__["given"] = wanted
    return pipeline(takes)(value)


@pytest.mark.parametrize(
    ("wanted", "value", "said"),
    [
        (int, "5", "integer; it is of type str"),
        (str, 5, "string; it is of type int"),
        (str, True, "string; it is of type bool"),
        (float, "no", "number; it is of type str"),
        (Ticket, {"number": 1}, "instance of Ticket; it is of type dict"),
        (work.Letter, {"name": "Ann"}, "instance of Letter; it is of type dict"),
        (list[Ticket], [Ticket(number=1), {"number": 1}], r"at \[1\] input should be an instance of Ticket"),
        (Ticket | None, {"number": 1}, "instance of Ticket"),
        (Array, ONES, "instance of Array"),
        (NDArray[np.float32], [1.0], "instance of ndarray"),
        (list[int], (1, 2), "list; it is of type tuple"),
        (Literal["a", "b"], "c", "'a' or 'b'"),
        (Color, "red", "instance of Color"),
        (int | str, 2.5, "integer; it is of type float"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(wanted: Any, value: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the argument given of takes does not fit: .*{said}"):
        check_fits(called_with(wanted, value))


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (int, True),
        (float, 3),
        (str, Color.RED),
        (datetime.date, NOW),
        (Ticket, Ticket(number=1)),
        (Box[int], Box(content=1)),
        (list[Array], [Array(ONES)]),
        (list[NDArray[np.float32]], [ONES]),
        (Sequence[int], (1, 2)),
        (int | None, None),
        (Annotated[int, Field(gt=3)], 1),  # its own to judge, as in any call
        (Annotated[str, AfterValidator(Path)], Path("x")),  # converted already
        (Spoken, 5),
        (T, 5),
        (Any, 5),
        ("KnownToTypeCheckersAlone", 5),
    ],
)
def test_what_its_types_allow_or_cannot_say_is_taken(wanted: Any, value: Any) -> None:
    check_fits(called_with(wanted, value))


@pytest.mark.parametrize(
    ("given", "named", "said"),
    [
        ((), {}, "missing a required argument: 'first'"),
        ((1,), {"first": 2}, "multiple values for argument 'first'"),
        ((1, 2, "three"), {}, "the argument more of many does not fit"),
        ((1,), {"third": "x"}, "the argument rest of many does not fit"),
    ],
)
def test_number_and_names_count_too(given: Any, named: Any, said: str) -> None:
    async def many(ctx: PipelineContext, first: int, *more: int, **rest: float) -> None: ...

    check_fits(pipeline(many)(1, 2, 3, third=1.5))
    with pytest.raises(ConfigurationError, match=said):
        check_fits(pipeline(many)(*given, **named))


async def test_nothing_is_put_there_where_one_does_not_fit(tmp_path: Path) -> None:
    async with Runtime(settings(f"sqlite:///{tmp_path}/s.db")) as runtime:
        wrong: Any = "secret-of-mine"
        with pytest.raises(ConfigurationError, match="the argument number of double") as caught:
            await runtime.enqueue_all([(work.double(1), "good"), (work.double(wrong), "bad")])
        assert "secret" not in str(caught.value)
        assert await runtime.runs() == []


async def test_a_pipeline_that_puts_there_what_does_not_fit_fails(tmp_path: Path) -> None:
    async with Runtime(settings(f"sqlite:///{tmp_path}/s.db")) as runtime:
        with pytest.raises(ConfigurationError, match="does not fit"):
            await runtime.run(work.leaves("one"))  # type: ignore[arg-type]
        assert (await run_until_empty(runtime)).claimed == 0
