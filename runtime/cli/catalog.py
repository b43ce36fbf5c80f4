"""`interlock catalog check` (its credentials: see `credentials`) and `interlock catalog show`."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from interlock.catalog import Catalog, ModelEntry
    from interlock.credentials import Chain

#: A level that holds fewer tokens than this is likelier a slip than a limit.
SENSIBLE_TOKENS = 4_000
LONGEST_REASON = 28  # characters in the table


def load_catalog(file: Path | None) -> Catalog:
    """The catalog in that file, or the one that ships."""
    from interlock.catalog import Catalog

    return Catalog.default() if file is None else Catalog.load(file)


def check(file: Path | None) -> str:
    """What a sound file holds, in one line, and a line for each thing that is allowed and likely meant otherwise.
    Raises CatalogError for one that is not sound."""
    catalog = load_catalog(file)
    kinds = Counter(str(entry.kind) for entry in catalog.entries.values())
    models = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
    unpriced = sorted(entry.id for entry in catalog.entries.values() if entry.prices is None)
    parts = [
        f"{file or catalog.file}: sound",
        f"models: {models}",
        f"pools: {len(catalog.pools)}",
        f"pins: {len(catalog.pins)}",
    ]
    if unpriced:
        parts.append(f"without a price: {', '.join(unpriced)}")
    return "\n".join(("; ".join(parts), *warnings_of(catalog)))


def warnings_of(catalog: Catalog) -> list[str]:
    """Providers that nothing here speaks to, and levels that hold less than a call asks."""
    from interlock.clients.registry import provider_keys

    models: dict[str, list[str]] = {}
    for entry in catalog.entries.values():
        models.setdefault(entry.provider, []).append(entry.id)
    warnings = []
    for provider, ids in models.items():
        if provider not in provider_keys():
            near = get_close_matches(provider, provider_keys(), n=1, cutoff=0.8)
            instead = f"did you mean {near[0]}?" if near else "no installed package brings it"
            warnings.append(f"warning: provider {provider} cannot be called ({instead}): {', '.join(ids)}")
    return warnings + _tight(catalog)


def _tight(catalog: Catalog) -> list[str]:
    from interlock.admission.limiter import rates_of

    warnings = {}
    for entry in catalog.entries.values():
        pool, limits = catalog.limits_of(entry)
        for name, rate in rates_of(limits).items():
            if "tokens" in name and rate.capacity < SENSIBLE_TOKENS:
                made_of = (
                    ""
                    if name.endswith("_day")
                    else f" ({rate.rate_per_s * 60:,.10g} a minute x burst_s {limits.burst_s:g})"
                )
                warnings[pool, name] = (
                    f"warning: {pool} holds at most {rate.capacity:,.10g} {name.replace('_', ' ')} at once{made_of}: a "
                    f"call of more can never be admitted{'; raise burst_s' if made_of else ''}"
                )
    return list(warnings.values())


def show_all(catalog: Catalog) -> Table:
    """One line a model."""
    from rich.table import Table

    from interlock.credentials import Chain

    shown = Table(box=None, pad_edge=False)
    for name in ("id", "can be called", "kind", "grade"):
        shown.add_column(name, no_wrap=True)
    for name in ("provider", "wire model"):
        shown.add_column(name, overflow="ellipsis", no_wrap=True, min_width=8, max_width=20)
    for name in ("window", "input/M", "output/M"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("pinned for", overflow="fold", min_width=10)
    credentials = Chain.default()
    for entry in catalog.entries.values():
        shown.add_row(
            entry.id,
            "yes" if (reason := _why_not(entry, catalog, credentials)) is None else _in_short(reason),
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

    from interlock.credentials import Chain

    entry = catalog.entry(model)
    pool, limits = catalog.limits_of(entry)
    stated: dict[str, Any] = entry.model_dump(mode="json", exclude_defaults=True)
    if "grade" in stated and entry.grade is not None:
        stated["grade"] = entry.grade.name
    stated["limits"] = {"pool": pool, **limits.model_dump(mode="json", exclude_defaults=True, exclude={"pool"})}
    shown: str = yaml.safe_dump(stated, sort_keys=False, allow_unicode=True, width=120).rstrip()
    reason = _why_not(entry, catalog, Chain.default())
    return shown + (f"\n# cannot be called now: {reason}" if reason is not None else "")


def _why_not(entry: ModelEntry, catalog: Catalog, credentials: Chain) -> str | None:
    from interlock.catalog.words import Status

    from ..desk import why_not

    if entry.status in (Status.DISABLED, Status.UNREACHABLE):
        return f"its status is {entry.status.value}"
    return why_not(entry, catalog, credentials)


def _in_short(reason: str) -> str:
    """What would help, or a few words of why not; `catalog show ID` has all of it."""
    remedy = str(getattr(reason, "remedy", ""))
    if remedy.startswith("pip install"):
        return "no: extra missing"
    if reason.startswith("no provider"):
        return "no: no such provider"
    return f"no: {remedy}" if remedy else f"no: {reason[:LONGEST_REASON]}"


def _price(entry: ModelEntry, which: str) -> str:
    if entry.prices is None:
        return "?"
    amount = getattr(entry.prices, which) * 1_000_000 / entry.prices.per
    return f"{amount.normalize():f} {entry.prices.currency}"


def _name(key: object) -> str:
    return str(getattr(key, "name", key))
