"""The catalog: which models exist, what their limits and prices are, and which are pinned."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from interlock.errors import CatalogError, ModelResolutionError

from .entry import Limits, ModelEntry, ProviderSettings
from .loader import DEFAULT_EMBEDDING_WIDTH, Loaded, PinKey, load_text, read_file
from .pricebook import PriceBook, PriceRow
from .pricing import worst_cost
from .reader import nearest
from .words import Grade, Kind, Status

log = logging.getLogger("interlock.catalog")

Stamp = tuple[int, int, int]


class Catalog:
    """A loaded catalog. Immutable; `reloaded()` gives the next one when the file has changed."""

    def __init__(self, loaded: Loaded, *, path: Path | None = None, stamp: Stamp | None = None) -> None:
        self._loaded = loaded
        self._path = path
        self._stamp = stamp
        self._warned: set[str] = set()
        self._by_price: dict[tuple[Kind, Grade | None], tuple[ModelEntry, ...]] = {}
        self._prices = PriceBook(loaded.entries.values())
        self._entries = {name: self._priced(entry) for name, entry in loaded.entries.items()}

    @classmethod
    def load(cls, source: str | bytes | os.PathLike[str], *, file: str | None = None) -> Catalog:
        """From a path, or from the text itself. `file` is the name that errors give. Raises `CatalogError`."""
        if isinstance(source, bytes):
            return cls(load_text(source, file or "<catalog>"))
        if isinstance(source, str) and _is_text(source):
            return cls(load_text(source, file or "<catalog>"))
        path = Path(source)
        stamp = _stamp(path)
        return cls(load_text(read_file(path), file or str(path)), path=path, stamp=stamp)

    @classmethod
    def default(cls) -> Catalog:
        """The catalog that ships with the package. Read once a process."""
        return cls(_shipped())

    @classmethod
    def of(
        cls,
        entries: Iterable[ModelEntry],
        *,
        pins: Mapping[PinKey, str | tuple[str, ...]] | None = None,
        pools: Mapping[str, Limits] | None = None,
        providers: Mapping[str, ProviderSettings] | None = None,
        embedding_width: int = DEFAULT_EMBEDDING_WIDTH,
    ) -> Catalog:
        """From entries built in code, without a file. Raises `CatalogError` for an id that comes twice."""
        by_id: dict[str, ModelEntry] = {}
        for entry in entries:
            if entry.id in by_id:
                raise CatalogError(f"{entry.id} is there twice", key="models")
            by_id[entry.id] = entry
        named = {key: (ids,) if isinstance(ids, str) else tuple(ids) for key, ids in (pins or {}).items()}
        return cls(
            Loaded(
                file="<code>",
                version="code",
                entries=by_id,
                providers=dict(providers or {}),
                defaults={},
                pools=dict(pools or {}),
                pins=named,
                embedding_width=embedding_width,
            )
        )

    @property
    def file(self) -> str:
        return self._loaded.file

    @property
    def version(self) -> str:
        """A short hash of the file's text: recorded with every cost, so a price can be traced."""
        return self._loaded.version

    @property
    def entries(self) -> Mapping[str, ModelEntry]:
        return MappingProxyType(self._entries)

    @property
    def pins(self) -> Mapping[PinKey, tuple[str, ...]]:
        return MappingProxyType(self._loaded.pins)

    @property
    def pools(self) -> Mapping[str, Limits]:
        return MappingProxyType(self._loaded.pools)

    @property
    def providers(self) -> Mapping[str, ProviderSettings]:
        return MappingProxyType(self._loaded.providers)

    @property
    def defaults(self) -> Mapping[str, Mapping[str, Any]]:
        """Fields that every entry of a provider has unless it says otherwise, by provider key."""
        return MappingProxyType(self._loaded.defaults)

    @property
    def embedding_width(self) -> int:
        return self._loaded.embedding_width

    def entry(self, entry_id: str) -> ModelEntry:
        """Raises `ModelResolutionError` naming what is near."""
        try:
            return self._entries[entry_id]
        except KeyError:
            raise ModelResolutionError(
                f"{self.file} has no model {entry_id!r}{nearest(entry_id, self._entries)}: "
                f"it has {_some(sorted(self._entries))}"
            ) from None

    def limits_of(self, entry: ModelEntry) -> tuple[str, Limits]:
        """The name of the pool an entry draws on, and the limits of that pool."""
        name = entry.limits.pool
        if name is None:
            return entry.pool, entry.limits
        if name not in self._loaded.pools:
            raise CatalogError(f"there is no pool {name}", file=self.file, key=f"models.{entry.id}.limits.pool")
        return name, self._loaded.pools[name]

    def provider(self, key: str) -> ProviderSettings:
        """The settings of a provider; those of a key that the file does not list are the defaults."""
        return self._loaded.providers.get(key) or ProviderSettings()

    def prices_of(self, entry: ModelEntry, served_model: str | None = None) -> PriceRow | None:
        """The prices that hold for a call, and which entry they come from. None: unknown, and warned of once."""
        row = self._prices.of(entry, served_model)
        if row is None and entry.id not in self._warned:
            self._warned.add(entry.id)
            log.warning("model %s has no price in %s: its calls are recorded without a cost", entry.id, self.file)
        return row

    def by_price(self, kind: Kind, grade: Grade | None = None) -> tuple[ModelEntry, ...]:
        """The open entries of a kind and grade that may be picked for it, the cheapest first."""
        known = self._by_price.get((kind, grade))
        if known is None:
            fitting = [
                entry
                for entry in self._entries.values()
                if entry.kind is kind and entry.grade is grade and not entry.named_only and entry.status is Status.OPEN
            ]
            known = self._by_price[kind, grade] = tuple(sorted(fitting, key=_price_order))
        return known

    def reloaded(self) -> Catalog:
        """This catalog, or a new one if its file has changed since. Raises `CatalogError` for a file now wrong."""
        if self._path is None:
            return self
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return self
        fresh = Catalog(load_text(read_file(self._path), self.file), path=self._path, stamp=stamp)
        if fresh.version == self.version:
            self._stamp = stamp
            return self
        return fresh

    @property
    def path(self) -> Path | None:
        """The file it was loaded from, if it was."""
        return self._path

    @property
    def loaded_stamp(self) -> Stamp | None:
        """How that file looked then: when it was written, its size, which file it is."""
        return self._stamp

    def stamp(self) -> Stamp | None:
        """How it looks now; None where it is not there."""
        return None if self._path is None else _stamp(self._path)

    def _priced(self, entry: ModelEntry) -> ModelEntry:
        row = self._prices.of(entry) if entry.prices is None else None
        return entry if row is None else entry.model_copy(update={"prices": row.prices})

    def __repr__(self) -> str:
        return f"<Catalog {self.file} {self.version}: {len(self._entries)} entries>"


@cache
def _shipped() -> Loaded:
    from importlib.resources import files  # slow to import, and needed here alone

    return load_text((files("interlock") / "catalog.yaml").read_bytes(), "interlock/catalog.yaml")


def _price_order(entry: ModelEntry) -> tuple[bool, str, Decimal, str]:
    """By the price of three parts input and one part output. Unpriced last; currencies are not compared."""
    price = worst_cost(entry.prices, 3_000, 1_000)
    currency = entry.prices.currency if entry.prices else ""
    return price is None, "" if currency == "USD" else currency, price or Decimal(0), entry.id


def _is_text(source: str) -> bool:
    """A path holds no line break, and no YAML mapping is without a colon or a brace."""
    if "\n" in source or not source.strip():
        return True
    return source.lstrip().startswith("{") or (": " in source and not os.path.exists(source))


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
