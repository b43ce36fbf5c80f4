"""The small values everyone passes around: what is asked, what was used."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.catalog import Grade, Kind, ModelSpec, OutputSize, Usage


@pytest.mark.parametrize("limit", [0, -1, 1.5, float("nan"), float("inf"), True, "5"])
def test_an_output_limit_is_a_whole_number_of_tokens(limit: Any) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ModelSpec(Grade.SMALL, max_output_tokens=limit)


def test_a_limit_is_given_in_one_way() -> None:
    with pytest.raises(ValueError, match="not both"):
        ModelSpec(Grade.SMALL, max_output_tokens=5, output=OutputSize.VERDICT)
    assert ModelSpec(Grade.SMALL, output=OutputSize.VERDICT).with_limit(5) == ModelSpec(
        Grade.SMALL, max_output_tokens=5
    )


def test_a_spec_is_a_key_and_says_what_is_asked() -> None:
    assert {ModelSpec(Grade.SMALL): 1}[ModelSpec.of(Grade.SMALL)] == 1
    assert [str(spec) for spec in (ModelSpec(Grade.SMALL), ModelSpec("m"), ModelSpec(kind=Kind.DECISION))] == [
        "SMALL",
        "m",
        "the decision pin",
    ]


def test_b42_usages_add_up_and_unknown_stays_unknown() -> None:
    first = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=3)
    second = Usage(input_tokens=10, output_tokens=5, cache_write_tokens=2, estimated=True)
    assert first + second == Usage(
        input_tokens=20, output_tokens=10, cache_read_tokens=3, cache_write_tokens=2, estimated=True
    )
    assert (first + second).total_input_tokens == 25
    assert Usage() + Usage() == Usage()
    assert Usage().total_input_tokens is None
