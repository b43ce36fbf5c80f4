"""A catalog as an object: look-ups, entries built in code, and the next one when the file has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interlock.catalog import Catalog, Grade, Limits, ProviderSettings
from interlock.errors import CatalogError, ModelResolutionError

TEXT = "models:\n  - {id: m, grade: SMALL, provider: p, wire_model_id: w, limits: {rpm: %d}}\n"


def write(path: Path, text: str, at_s: int) -> None:
    path.write_text(text)
    os.utime(path, (at_s, at_s))


def test_a_changed_file_gives_a_new_catalog_and_an_unchanged_one_the_same(tmp_path: Path) -> None:
    path = tmp_path / "catalog.yaml"
    write(path, TEXT % 10, 1_000)
    catalog = Catalog.load(path)
    assert catalog.reloaded() is catalog
    write(path, TEXT % 10, 2_000)  # touched, the same text
    assert catalog.reloaded() is catalog
    write(path, TEXT % 20, 3_000)
    fresh = catalog.reloaded()
    assert fresh is not catalog
    assert (fresh.entry("m").limits.rpm, catalog.entry("m").limits.rpm) == (20, 10)
    assert fresh.version != catalog.version
    assert fresh.reloaded() is fresh


def test_a_file_gone_wrong_says_so_and_the_old_catalog_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "catalog.yaml"
    write(path, TEXT % 10, 1_000)
    catalog = Catalog.load(path)
    write(path, "models: [{id: m}]\n", 2_000)
    with pytest.raises(CatalogError, match="is missing"):
        catalog.reloaded()
    assert catalog.entry("m").limits.rpm == 10
    path.unlink()
    with pytest.raises(CatalogError, match="no such file"):
        catalog.reloaded()
    write(path, TEXT % 30, 3_000)
    assert catalog.reloaded().entry("m").limits.rpm == 30


def test_a_catalog_without_a_file_never_changes() -> None:
    catalog = Catalog.load(TEXT % 10)
    assert catalog.reloaded() is catalog
    assert Catalog.load(TEXT % 10).version == catalog.version


def test_entries_can_be_built_in_code(make_entry) -> None:
    catalog = Catalog.of(
        [make_entry(id="a", limits=Limits(pool="shared")), make_entry(id="b", limits=Limits(rpm=5))],
        pools={"shared": Limits(tpm=100)},
        pins={Grade.SMALL: "a"},
        providers={"p": ProviderSettings(timeout_s=5)},
    )
    assert catalog.limits_of(catalog.entry("a")) == ("shared", Limits(tpm=100))
    assert catalog.limits_of(catalog.entry("b")) == ("model:b", Limits(rpm=5))
    assert catalog.provider("p").timeout_s == 5
    assert catalog.provider("unlisted") == ProviderSettings()
    with pytest.raises(CatalogError, match="a is there twice"):
        Catalog.of([make_entry(id="a"), make_entry(id="a")])
    with pytest.raises(CatalogError, match="there is no pool gone"):
        Catalog.of([]).limits_of(make_entry(limits=Limits(pool="gone")))


def test_an_unknown_entry_names_the_near_and_the_known() -> None:
    with pytest.raises(ModelResolutionError, match=r"no model 'n'.*it has m"):
        Catalog.load(TEXT % 10).entry("n")


def test_what_a_catalog_hands_out_cannot_be_changed() -> None:
    catalog = Catalog.load(TEXT % 10)
    with pytest.raises(TypeError):
        catalog.entries["x"] = catalog.entry("m")  # type: ignore[index]
    with pytest.raises(ValueError, match="frozen"):
        catalog.entry("m").id = "x"  # type: ignore[misc]
