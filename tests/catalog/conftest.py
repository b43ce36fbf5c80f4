"""Fixtures of the catalog's tests: an entry by its differences, and the error of a wrong file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interlock.catalog import Catalog, Grade, ModelEntry
from interlock.errors import CatalogError

MakeEntry = Callable[..., ModelEntry]


@pytest.fixture(scope="session")
def make_entry() -> MakeEntry:
    def make(**fields: Any) -> ModelEntry:
        known: dict[str, Any] = {"id": "m", "provider": "p", "wire_model_id": "w"}
        if fields.get("kind", "chat") == "chat":
            known["grade"] = Grade.SMALL
        return ModelEntry(**{**known, **fields})

    return make


@pytest.fixture(scope="session")
def refused() -> Callable[[str | bytes], CatalogError]:
    """Loads a text that must be refused, and gives the error."""

    def load(text: str | bytes) -> CatalogError:
        with pytest.raises(CatalogError) as caught:
            Catalog.load(text, file="catalog.yaml")
        return caught.value

    return load


@pytest.fixture(scope="session")
def refused_entry(refused: Callable[[str], CatalogError]) -> Callable[[str], CatalogError]:
    """The same for one line of an otherwise right entry; the line is the file's sixth."""

    def load(line: str) -> CatalogError:
        return refused(ENTRY + f"    {line}\n")

    return load


ENTRY = """\
models:
  - id: m
    grade: SMALL
    provider: p
    wire_model_id: w
"""
