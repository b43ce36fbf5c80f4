"""The catalog file with what was found: statuses, and entries for new models. It is loaded and held against the old one
before it takes its place, in one step and with the same mode; a file that is wrong is never written.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path

from interlock.catalog import Catalog
from interlock.catalog.adding import NewEntry, with_entries
from interlock.catalog.editing import with_status
from interlock.catalog.words import Status
from interlock.errors import CatalogError, ConfigurationError

from .asking import Said
from .comparing import Difference
from .entries import entry_for

_BOM = b"\xef\xbb\xbf"
_UNPRICED: Mapping[str, None] = {"prices": None}


def statuses(differences: Iterable[Difference], *, mark_unreachable: bool = False) -> dict[str, Status]:
    """Which entries get which status. What could not be asked changes nothing, unless `mark_unreachable`."""
    wanted: dict[str, Status] = {}
    for difference in differences:
        wanted |= dict.fromkeys((entry.id for entry in difference.back), Status.OPEN)
        wanted |= dict.fromkeys((entry.id for entry in difference.gone), Status.UNLISTED)
        if mark_unreachable and difference.answer.said in (Said.REFUSED, Said.FAILED):
            open_ones = (e.id for e in difference.answer.account.entries if e.status is Status.OPEN)
            wanted |= dict.fromkeys(open_ones, Status.UNREACHABLE)
    return wanted


def new_entries(differences: Iterable[Difference], catalog: Catalog, today: date) -> list[NewEntry]:
    """An entry for each new model, with an id that is still free."""
    taken = set(catalog.entries)
    made: list[NewEntry] = []
    for difference in differences:
        for model in difference.new:
            made.append(entry_for(model, difference.answer.account, catalog, taken, today))
            taken.add(str(made[-1].fields["id"]))
    return made


def write(path: Path, catalog: Catalog, wanted: Mapping[str, Status], entries: Sequence[NewEntry], today: date) -> None:
    """Put the changes into the file that `catalog` was loaded from. Raises `CatalogError` where the result would not
    load, or say anything else that the old one did not; ConfigurationError where the file cannot be written, or has
    changed since it was loaded."""
    target = path.resolve()  # where it is a link, the link stays
    try:
        raw = target.read_bytes()
        mode = stat.S_IMODE(target.stat().st_mode)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    before = Catalog.load(raw, file=str(path))
    if before.version != catalog.version:
        raise ConfigurationError(f"{path} has changed while the providers were asked: nothing was written, try again")
    text = raw.removeprefix(_BOM).decode()
    text = with_status(text, str(path), wanted, today)
    text = with_entries(text, str(path), entries, f"Found by interlock catalog discover on {today:%Y-%m-%d}.")
    fresh = _BOM * raw.startswith(_BOM) + text.encode()
    _hold_against(before, Catalog.load(fresh, file=f"{path} as it would be written"), wanted, entries)
    _replace(target, fresh, mode)


def _hold_against(before: Catalog, after: Catalog, wanted: Mapping[str, Status], entries: Sequence[NewEntry]) -> None:
    expected = {
        name: entry.model_copy(update={"status": wanted.get(name, entry.status)})
        for name, entry in before.entries.items()
    }
    added = {str(entry.fields["id"]) for entry in entries}
    pools = before.pools.keys() | {name for entry in entries for name in entry.pools}
    kept = {
        # A new row may give its price to an entry of the same model that states none.
        name: entry if name in before.entries and before.entries[name].prices else entry.model_copy(update=_UNPRICED)
        for name, entry in after.entries.items()
        if name not in added
    }
    same = kept == expected and after.entries.keys() == expected.keys() | added and not added & expected.keys()
    same = same and after.pools.keys() == pools and before.pools.items() <= after.pools.items()
    if not (same and after.pins == before.pins and after.providers == before.providers):
        raise CatalogError("the change would touch more than it should: nothing was written", file=before.file)


def _replace(target: Path, content: bytes, mode: int) -> None:
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise _unwritable(target, error) from None
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(target, error) from None
        raise


def _unwritable(target: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{target} cannot be written: {error.strerror or error}")
