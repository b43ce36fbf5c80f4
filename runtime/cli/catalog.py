"""`interlock catalog check` and `interlock catalog show`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from interlock.catalog import Catalog, ModelEntry


def load_catalog(file: Path | None) -> Catalog:
    """The catalog in that file, or the one that ships."""
    from interlock.catalog import Catalog

    return Catalog.default() if file is None else Catalog.load(file)


def check(file: Path) -> str:
    """What a sound file holds, in one line. Raises CatalogError for one that is not."""
    catalog = load_catalog(file)
    kinds = Counter(str(entry.kind) for entry in catalog.entries.values())
    models = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
    unpriced = sorted(entry.id for entry in catalog.entries.values() if entry.prices is None)
    parts = [f"{file}: sound", f"models: {models}", f"pools: {len(catalog.pools)}", f"pins: {len(catalog.pins)}"]
    if unpriced:
        parts.append(f"without a price: {', '.join(unpriced)}")
    return "; ".join(parts)


def show_all(catalog: Catalog) -> Table:
    """One line a model."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    for name in ("id", "kind", "grade"):
        shown.add_column(name, no_wrap=True)
    for name in ("provider", "wire model"):
        shown.add_column(name, overflow="ellipsis", no_wrap=True, min_width=10)
    for name in ("window", "input", "output"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("pinned for", overflow="fold")
    for entry in catalog.entries.values():
        shown.add_row(
            entry.id,
            str(entry.kind),
            entry.grade.name if entry.grade else "",
            entry.provider,
            entry.wire_model_id,
            f"{entry.context_window:,}" if entry.context_window else "?",
            _price(entry, "input"),
            _price(entry, "output"),
            ", ".join(_name(key) for key, ids in catalog.pins.items() if entry.id in ids),
        )
    return shown


def show_one(catalog: Catalog, model: str) -> str:
    """One entry as the file could state it, with the limits of its pool. Raises ModelResolutionError."""
    import yaml

    entry = catalog.entry(model)
    pool, limits = catalog.limits_of(entry)
    stated: dict[str, Any] = entry.model_dump(mode="json", exclude_defaults=True)
    if "grade" in stated and entry.grade is not None:
        stated["grade"] = entry.grade.name
    stated["limits"] = {"pool": pool, **limits.model_dump(mode="json", exclude_defaults=True, exclude={"pool"})}
    return yaml.safe_dump(stated, sort_keys=False, allow_unicode=True, width=120).rstrip()


def _price(entry: ModelEntry, which: str) -> str:
    if entry.prices is None:
        return "?"
    amount = getattr(entry.prices, which) * 1_000_000 / entry.prices.per
    return f"{amount.normalize():f} {entry.prices.currency}/M"


def _name(key: object) -> str:
    return str(getattr(key, "name", key))
