"""Edits of a catalog's text: what is asked changes, and nothing else does."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from interlock.catalog import Catalog
from interlock.catalog.adding import NewEntry, with_entries
from interlock.catalog.editing import marked_by_discover, with_status
from interlock.catalog.entry import Limits
from interlock.catalog.words import Status
from interlock.errors import CatalogError

DAY = date(2026, 11, 30)
FIELDS = {"id": "new", "grade": "MICRO", "provider": "p", "wire_model_id": "w"}
NEW = NewEntry(fields=FIELDS)
FILES = [
    "models:\n  - id: a\n    grade: SMALL\n    provider: p\n    wire_model_id: v\n# end\n",
    "models:\n- {id: a, grade: SMALL, provider: p, wire_model_id: v, }  # note\n# end",
    "models:\r\n  - id: a  # mine\r\n    grade: SMALL\r\n    provider: p\r\n    wire_model_id: v\r\n"
    "\r\npins: {SMALL: a}\r\n",
    "models:\n  - id: a\n    status: open  # as agreed\n    grade: SMALL\n    provider: p\n    wire_model_id: v",
    "pools:\n  q: &q {rpm: 5}\n  r: *q\nmodels:\n  - {id: a, grade: SMALL, provider: p, wire_model_id: v,\n"
    "     limits: {pool: q}}\npins: {SMALL: [a]}\n",
    "pools: {q: {rpm: 5}}\ndefaults: {p: {status: disabled}}\nmodels:\n  - id: a\n    grade: SMALL\n    provider: p\n"
    "    wire_model_id: >-\n      v\n\n# end\n",
]


@pytest.mark.parametrize("text", FILES)
def test_a_status_is_set_taken_back_and_set_again(text: str) -> None:
    closed = with_status(text, "f", {"a": Status.UNLISTED}, DAY)
    assert Catalog.load(closed.encode()).entries["a"].status is Status.UNLISTED
    assert marked_by_discover(closed, "f") == {"a"}
    assert "since 2026-11-30 (interlock catalog discover)" in closed
    opened = with_status(closed, "f", {"a": Status.OPEN}, DAY)
    assert Catalog.load(opened.encode()).entries["a"].status is Status.OPEN
    assert marked_by_discover(opened, "f") == frozenset()
    assert "discover" not in opened
    assert with_status(opened, "f", {"a": Status.UNLISTED}, DAY) == closed
    for said in ("# end", "# note", "# mine", "# as agreed"):
        assert (said in text) == (said in closed) == (said in opened)
    assert closed.count("\r\n") == closed.count("\n") or "\r\n" not in text


@pytest.mark.parametrize("text", [*FILES, "models: []\n", "models: []  # none\npins: {}\n"])
def test_an_entry_is_put_in_behind_the_last(text: str) -> None:
    before = Catalog.load(text.encode())
    longer = with_entries(text, "f", [NewEntry(fields=FIELDS, comments=["who knows"])], "Found today.")
    after = Catalog.load(longer.encode())
    assert list(after.entries) == [*before.entries, "new"]
    assert all(after.entries[name] == entry for name, entry in before.entries.items())
    assert (after.pins, after.pools) == (before.pins, before.pools)
    head = longer.index("# Found today.")
    assert head < longer.index("# who knows") < longer.index("id: new")
    assert with_entries(text, "f", [], "x") == text


def test_the_shipped_catalog_bears_it_all() -> None:
    from importlib.resources import files

    text = (files("interlock") / "catalog.yaml").read_text(encoding="utf-8")
    before = Catalog.load(text.encode())
    closed = with_status(text, "f", dict.fromkeys(before.entries, Status.UNLISTED), DAY)
    longer = with_entries(closed, "f", [NEW], "Found.")
    after = Catalog.load(longer.encode())
    assert {entry.status for name, entry in after.entries.items() if name != "new"} == {Status.UNLISTED}
    assert after.pins == before.pins
    assert set(text.splitlines()) <= set(longer.splitlines())


A = "{id: a, grade: SMALL, provider: p, wire_model_id: v}"
B = A.replace("id: a", "id: b")
BRACKETS = [
    f"models: [{A}]\n",
    f"models: [{A},]\npins: {{SMALL: a}}",
    f"models: [{A}, {B}]  # all\n",
    f"models:\n  [{A},\n   {B},  # the last\n  ]\n# end\n",
    f"models: [\r\n  {A}  # the last\r\n]\r\n",
    f"pools: {{}}\nmodels: [{A}]\n",
    f"pools:\nmodels: [{A}]\n",
    f"# of the models\nmodels: [{A}]\n",
    f"pools: {{q: {{rpm: 1}}}}\nmodels:\n  - {A}\n",
    f"pools:\n  q: {{rpm: 1}}  # mine\n  # end of pools\nmodels:\n  - {A}\n",
    f"{{models: [{A}]}}",
    f"{{pools: {{q: {{rpm: 1}}, }}, models: [{A}], pins: {{SMALL: a}} }}\n",
    "{models: []}",
    '{"models": [{"id": "a", "grade": "SMALL", "provider": "p", "wire_model_id": "v"}]}\n',
]


@pytest.mark.parametrize("text", [*FILES, *BRACKETS])
def test_entries_and_their_pools_go_in_wherever_there_is_a_place_for_them(text: str) -> None:
    before = Catalog.load(text.encode())
    drawing = {**FIELDS, "limits": {"pool": "new-pool"}}
    entries = [
        NewEntry(fields=drawing, comments=["who knows"], pools={"new-pool": {"rpm": 3, "as_of": DAY}}),
        NewEntry(fields={**drawing, "id": "newer"}, pools={"new-pool": {"rpm": 3, "as_of": DAY}, "1e6": {"tpm": 5}}),
    ]
    longer = with_entries(text, "f", entries, "Found today.")
    after = Catalog.load(longer.encode())
    assert list(after.entries) == [*before.entries, "new", "newer"]
    assert all(after.entries[name] == entry for name, entry in before.entries.items())
    assert after.pools == {**before.pools, "new-pool": Limits(rpm=3, as_of=DAY), "1e6": Limits(tpm=5)}
    assert after.pins == before.pins
    assert "# who knows" in longer
    for said in ("# end", "# all", "# the last", "# mine", "# of the models"):
        assert (said in text) == (said in longer)
    assert longer.count("\r\n") == longer.count("\n") or "\r\n" not in text
    again = with_entries(longer, "f", [NewEntry(fields={**FIELDS, "id": "newest"})], "Found later.")
    assert list(Catalog.load(again.encode()).entries) == [*after.entries, "newest"]


def test_a_list_that_is_an_alias_is_named() -> None:
    text = f"defaults: {{p: {{fallbacks: &list [{A}]}}}}\nmodels: *list\n"
    with pytest.raises(CatalogError, match="is an alias"):
        with_entries(text, "f", [NEW], "x")


@pytest.mark.parametrize("closed", [{"a"}, {"b"}, {"c"}, {"a", "c"}, {"a", "b", "c"}])
@pytest.mark.parametrize("wide", [
    "models: [{id: a, grade: SMALL, provider: p, wire_model_id: v}, {id: b, grade: SMALL, provider: p, wire_model_id: v"
    ", status: disabled}, {id: c, status: open, grade: SMALL, provider: p, wire_model_id: v}]  # three\n",
])  # fmt: skip
def test_entries_on_one_line_have_a_mark_each(wide: str, closed: set[str]) -> None:
    """`b` is the user's own: disabled, and never opened because a neighbour was marked."""
    wanted = dict.fromkeys(closed, Status.UNLISTED)
    marked = with_status(wide, "f", wanted, DAY)
    before, after = Catalog.load(wide.encode()), Catalog.load(marked.encode())
    for name, entry in after.entries.items():
        assert entry.status is wanted.get(name, before.entries[name].status), name
    assert marked_by_discover(marked, "f") == closed
    assert "# three" in marked
    opened = with_status(marked, "f", dict.fromkeys(closed, Status.OPEN), DAY)
    assert marked_by_discover(opened, "f") == frozenset()
    assert {e.status for name, e in Catalog.load(opened.encode()).entries.items() if name in closed} == {Status.OPEN}


words = st.text(st.characters(exclude_categories=("Cs", "Cc", "Co", "Cn", "Zl", "Zp")), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    words, words, st.decimals(0, 10**6, places=4), st.sampled_from(["1e6", "no", "007", "a: b", "# x", "- y", "'", '"'])
)
def test_whatever_a_provider_calls_its_model_is_read_back(name: str, wire: str, price: Decimal, odd: str) -> None:
    fields: dict[str, Any] = {
        **FIELDS, "id": name, "wire_model_id": wire + odd, "identity": odd, "prices": {"input": price, "as_of": DAY},
    }  # fmt: skip
    text = with_entries(FILES[0], "f", [NewEntry(fields=fields)], "Found.")
    if name == "a" or not name.strip():
        return
    made = Catalog.load(text.encode()).entries[name]
    assert (made.wire_model_id, made.identity) == (wire + odd, odd)
    assert made.prices is not None
    assert (made.prices.input, made.prices.as_of) == (price, DAY)
