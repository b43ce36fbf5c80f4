"""Which entry's prices hold for a wire id: the most specific row wins, else the base row, else unknown.

A provider serves one model under several ids: with a region (`us.`, `eu.`, `global.`), as the ARN of an inference
profile, with a date or a version behind it. A regional row that exists wins over the base row, because regions cost
different. What matches no row has no price: None, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .entry import ModelEntry, Prices

REGIONS = ("us-gov", "us", "eu", "apac", "jp", "au", "ca", "global")

_REGION = re.compile(rf"(?:{'|'.join(REGIONS)})\.(?=[a-z0-9-]+\.)")
_ARN = re.compile(r"arn:[a-z-]+:bedrock:[a-z0-9-]*:[0-9]*:(foundation-model|inference-profile)/(.+)")
_DATED = re.compile(r"[-@](?:20[0-9]{6}|20[0-9]{2}-[0-9]{2}-[0-9]{2})(?=$|-v)|-v[0-9]+(?::[0-9]+)?$|-latest$")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """Prices, and the id of the entry that states them."""

    entry_id: str
    prices: Prices


class PriceBook:
    """The priced entries of a catalog, by provider and wire id."""

    def __init__(self, entries: Iterable[ModelEntry]) -> None:
        self._rows: dict[tuple[str, str | None, str], PriceRow] = {}
        #: Entries that state no prices themselves; the catalog hands them out with those of another row.
        self._without: set[str] = set()
        for entry in entries:
            if entry.prices is None:
                self._without.add(entry.id)
            else:
                row = PriceRow(entry_id=entry.id, prices=entry.prices)
                self._rows.setdefault((entry.provider, entry.base_url, entry.wire_model_id), row)

    def of(self, entry: ModelEntry, served_model: str | None = None) -> PriceRow | None:
        """The entry's own prices; without any, those of the same model's most specific row at the same provider.

        `served_model` is the id that the provider says has answered: a row written for exactly that one wins.
        """
        if served_model is not None and served_model != entry.wire_model_id:
            exact = self._rows.get((entry.provider, entry.base_url, served_model))
            if exact is not None:
                return exact
        if entry.prices is not None and entry.id not in self._without:
            return PriceRow(entry_id=entry.id, prices=entry.prices)
        for wire_id in candidates(entry.wire_model_id):
            row = self._rows.get((entry.provider, entry.base_url, wire_id))
            if row is not None:
                return row
        return None


def candidates(wire_id: str) -> Iterator[str]:
    """The ids a row may stand under, the most specific first. An application profile's ARN hides its model: itself."""
    match = _ARN.fullmatch(wire_id)
    yield wire_id
    current = match[2] if match else wire_id
    seen = {wire_id}
    for region in (current, _REGION.sub("", current, count=1)):
        undated = region
        while undated not in seen or undated == region:
            if undated not in seen:
                seen.add(undated)
                yield undated
            shorter = _DATED.sub("", undated, count=1)
            if shorter == undated:
                break
            undated = shorter
