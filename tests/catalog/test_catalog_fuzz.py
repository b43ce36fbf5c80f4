"""Whatever stands in a file, it loads or raises `CatalogError` with its name; nothing else, and in bounded time."""

from __future__ import annotations

import random
from importlib.resources import files

from hypothesis import HealthCheck, given, settings, strategies as st

from interlock.catalog import Catalog
from interlock.errors import CatalogError

SHIPPED = (files("interlock") / "catalog.yaml").read_text(encoding="utf-8")
LINES = SHIPPED.splitlines()[:140]

SCRAPS = (
    "no|1e6|3e-6|012|1:30|1_0|.nan|-.inf|null|~|''|'|{|}|[|]|:|-|&a|*a|!!str|? |>|---|#|${X}|<<: *a|%YAML 1.1|\"|\t"
)
WORDS = st.one_of(st.sampled_from(["|", "9" * 40, "1.0e+999", "\\U0011FFFF"]), st.sampled_from(SCRAPS.split("|")))
KEYS = st.sampled_from(["id", "grade", "limits", "rpm", "prices", "input", "<<", "x"])
YAML_LIKE = st.recursive(
    st.sampled_from(["no", "1", "1e6", "text", "", "2026-01-01", "'x'", "models", "&a {b: 1}", "*a"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.dictionaries(
            st.sampled_from(["id", "grade", "limits", "rpm", "prices", "input", "<<", "x"]), inner, max_size=3
        ).map(lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs.items()) + "}"),
    ),
    max_leaves=12,
)


def loads_or_says_why(text: str | bytes) -> None:
    said = None
    try:
        catalog = Catalog.load(text, file="catalog.yaml")
    except CatalogError as error:
        said = error
    if said is None:
        assert catalog.version
        return
    assert said.file == "catalog.yaml"
    assert str(said).startswith("catalog.yaml")
    assert said.problems


@given(st.text(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_text(text: str) -> None:
    loads_or_says_why(text + "\n")


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes(data: bytes) -> None:
    loads_or_says_why(data)


@given(st.lists(st.one_of(WORDS, st.sampled_from(["models:", "\n", "\n  ", " ", "id: ", "pins: "])), max_size=30))
@settings(max_examples=150, deadline=None)
def test_any_scraps_of_yaml(scraps: list[str]) -> None:
    loads_or_says_why("".join(scraps) + "\n")


@given(YAML_LIKE, st.sampled_from(["models", "pools", "pins", "providers", "defaults", "embedding_width"]))
@settings(max_examples=150, deadline=None)
def test_any_value_of_a_section(value: str, section: str) -> None:
    loads_or_says_why(f"{section}: {value}\n" + ("" if section == "models" else "models: []\n"))


@given(
    YAML_LIKE,
    st.sampled_from(["id", "grade", "limits", "prices", "inputs", "thinking", "provider_options", "timeout_s"]),
)
@settings(max_examples=150, deadline=None)
def test_any_value_of_a_field(value: str, field: str) -> None:
    loads_or_says_why(f"models:\n  - {{id: m, grade: SMALL, provider: p, wire_model_id: w}}\n  - {field}: {value}\n")


@given(st.integers(0, 2**32), WORDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_shipped_catalog_with_a_word_dropped_into_it(seed: int, word: str) -> None:
    chance = random.Random(seed)
    lines = list(LINES)
    at = chance.randrange(len(lines))
    column = chance.randrange(len(lines[at]) + 1)
    lines[at] = lines[at][:column] + word + lines[at][column:]
    loads_or_says_why("\n".join(lines) + "\n")
