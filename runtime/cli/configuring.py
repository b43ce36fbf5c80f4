"""With which settings `interlock run` opens its Runtime: those of the command line, as the deployment changes them."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Collection
from decimal import Decimal
from pathlib import Path
from typing import Any

from interlock.catalog import Catalog
from interlock.catalog.pricing import parse_cap
from interlock.errors import ConfigurationError, InterlockError

from ..settings import RuntimeSettings


async def configured(settings: RuntimeSettings, function: Callable[..., Any] | None, name: str) -> RuntimeSettings:
    """What the function named with --configure makes of the settings. It takes them and returns the ones to use, as a
    plain or an `async def` function. Raises ConfigurationError for one that does not."""
    if function is None:
        return settings
    try:
        given = function(settings)
        if inspect.isawaitable(given):
            given = await given
    except InterlockError:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigurationError(
            f"--configure {name} failed: {type(error).__name__}: {error} (line {last.lineno} of "
            f"{Path(last.filename).name})"
        ) from None
    if not isinstance(given, RuntimeSettings):
        raise ConfigurationError(
            f"--configure {name} gave {type(given).__name__}: it takes the RuntimeSettings and returns the ones to "
            "use, as in `return dataclasses.replace(settings, databases=(...))`"
        )
    return given


async def dispose(settings: RuntimeSettings) -> None:
    """Close the engines of the deployment's databases: the command ends, and nobody else will."""
    for engine in dict.fromkeys(provider.engine for provider in settings.databases):
        await engine.dispose()


def checked_cap(text: str | None) -> None:
    """Raises ConfigurationError for a cap that no call could be made under."""
    if text is None:
        return
    try:
        amount, _ = parse_cap(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"--max-cost: {error}") from None
    if amount == Decimal(0):
        raise ConfigurationError("--max-cost 0 leaves nothing to spend: write the most that this run may cost")


def check_currency(settings: RuntimeSettings) -> None:
    """Raises ConfigurationError where nothing that costs anything is priced in the cap's currency."""
    catalog = settings.catalog
    if settings.cost_cap is None or not isinstance(catalog, Catalog):
        return
    _, currency = parse_cap(settings.cost_cap)
    prices = [entry.prices for entry in catalog.entries.values() if entry.prices is not None]
    found = sorted({price.currency for price in prices if price.input or price.output})
    if found and currency not in found:
        raise ConfigurationError(
            f"--max-cost is in {currency}, but the prices of {catalog.file} are in {' and '.join(found)}: write the "
            f"cap in {found[0]}"
        )


class NewStore:
    """A store that this command made, and that goes again where nothing came of it."""

    def __init__(self, url: str | None) -> None:
        place = (url or "").partition("sqlite:///")[2]
        self._path = Path(place) if place and place != ":memory:" and "?" not in place else None
        self._was_there = self._path is None or self._path.exists()

    def leave_nothing(self, own_runs: Collection[str]) -> None:
        """Remove it, unless it was there before, or holds a call or another's run."""
        path = self._path
        if path is None or self._was_there or not path.is_file() or not _is_empty(path, own_runs):
            return
        for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
            file.unlink(missing_ok=True)


def _is_empty(path: Path, own_runs: Collection[str]) -> bool:
    import sqlite3
    from contextlib import closing

    try:
        with closing(sqlite3.connect(path)) as connection:
            if connection.execute("SELECT 1 FROM calls LIMIT 1").fetchone() is not None:
                return False
            return {row[0] for row in connection.execute("SELECT run_id FROM runs")} <= set(own_runs)
    except sqlite3.Error:
        return False
