"""What entries, pools, pins and fallbacks owe each other. Every breach is a problem of the file with its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .addresses import FORM, wrong_with
from .document import Path
from .entry import Limits, ModelEntry
from .reader import Reader, nearest
from .words import Grade, Kind, Status

if TYPE_CHECKING:
    from .loader import Loaded

#: What a pin may name. The last two are what `interlock catalog discover` has seen, not what anybody decided: such an
#: entry is passed over while it lasts, and its pin need not be taken out and put back.
PINNABLE = (Status.OPEN, Status.UNLISTED, Status.UNREACHABLE)


def check(loaded: Loaded, reader: Reader) -> None:
    """Add every breach to the reader's problems."""
    _width(loaded, reader)
    used = {entry.provider for entry in loaded.entries.values()} | loaded.providers.keys()
    for unused in loaded.defaults.keys() - used:
        reader.add(f"no entry has this provider{nearest(unused, used)}", ("defaults", unused))
    for key, settings in loaded.providers.items():
        _base_url(settings.base_url, ("providers", key, "base_url"), reader)
    for name, limits in loaded.pools.items():
        _pool(name, limits, reader)
    for index, entry in enumerate(loaded.entries.values()):
        _entry(entry, ("models", index), loaded, reader)
    for pin, ids in loaded.pins.items():
        name = pin.name if isinstance(pin, Grade) else pin
        for position, pinned in enumerate(ids):
            _pin(pin, pinned, ("pins", name, position), loaded, reader)


def _width(loaded: Loaded, reader: Reader) -> None:
    width = loaded.embedding_width
    if width < 1:
        reader.add(f"must be at least 1, not {width}", ("embedding_width",))
    open_ones = [e for e in loaded.entries.values() if e.kind is Kind.EMBEDDINGS and e.status is Status.OPEN]
    for entry in open_ones:
        asked = entry.requested_dimensions
        if asked is not None and asked != width:
            reader.add(
                f"asks for {asked} dimensions and embedding_width is {width}: open embedding entries share one width",
                ("models", _index(loaded, entry), "requested_dimensions"),
            )
        if entry.dimensions is not None and asked is not None and asked > entry.dimensions:
            reader.add(
                f"asks for {asked} dimensions of a model with {entry.dimensions}",
                ("models", _index(loaded, entry), "requested_dimensions"),
            )


def _base_url(url: str | None, path: Path, reader: Reader) -> None:
    if url is None:
        return
    problem = wrong_with(url)
    if problem is not None:
        reader.add(f"{problem}: {FORM}", path)


def _index(loaded: Loaded, entry: ModelEntry) -> int:
    return list(loaded.entries).index(entry.id)


def _pool(name: str, limits: Limits, reader: Reader) -> None:
    if limits.pool is not None:
        reader.add("a pool cannot draw on another pool: write its limits here", ("pools", name, "pool"))


def _entry(entry: ModelEntry, path: Path, loaded: Loaded, reader: Reader) -> None:
    _base_url(entry.base_url, (*path, "base_url"), reader)
    pool = entry.limits.pool
    if pool is not None and pool not in loaded.pools:
        reader.add(f"there is no pool {pool}{nearest(pool, loaded.pools)}", (*path, "limits", "pool"))
    if entry.provider not in loaded.providers and (close := nearest(entry.provider, loaded.providers)):
        reader.add(f"there is no provider {entry.provider}{close}", (*path, "provider"))
    if entry.kind is Kind.EMBEDDINGS and entry.dimensions is None and entry.status is Status.OPEN:
        reader.add("an embedding entry must state its native width as `dimensions`", path)
    for position, name in enumerate(entry.fallbacks):
        where = (*path, "fallbacks", position)
        other = loaded.entries.get(name)
        if name == entry.id:
            reader.add("an entry cannot fall back to itself", where)
        elif other is None:
            reader.add(f"there is no entry {name}{nearest(name, loaded.entries)}", where)
        elif other.kind is not entry.kind:
            reader.add(f"{name} is a model for {other.kind.value}, not for {entry.kind.value}", where)


def _pin(key: Grade | str, pinned: str, path: Path, loaded: Loaded, reader: Reader) -> None:
    entry = loaded.entries.get(pinned)
    if entry is None:
        reader.add(f"there is no entry {pinned}{nearest(pinned, loaded.entries)}", path)
        return
    kind = Kind.CHAT if isinstance(key, Grade) else Kind(key)
    if entry.kind is not kind:
        reader.add(f"{pinned} is a model for {entry.kind.value}, and this pin is for {kind.value}", path)
        return
    if entry.status not in PINNABLE:
        reader.add(f"{pinned} is {entry.status.value}: only an open entry can be pinned", path)
    if not isinstance(key, Grade) or entry.grade is None:
        return
    floor = _ceiling(loaded) if key is Grade.CEILING else key
    if entry.grade < floor:
        reader.add(f"{pinned} is {entry.grade.name}, below {floor.name}: a grade is a floor", path)


def _ceiling(loaded: Loaded) -> Grade:
    grades = [e.grade for e in loaded.entries.values() if e.grade is not None and e.status is Status.OPEN]
    return max(grades, key=lambda grade: grade.value, default=Grade.MICRO)
