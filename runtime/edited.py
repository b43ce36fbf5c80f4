"""EditedCatalog: whether the catalog's file says something new, decided from what the file looked like a moment ago.

Editors do not write a file in one step: some truncate it and write again, some put another in its place, and for a
moment it is empty, half there, or gone. So a change counts once the file has looked the same twice. What then cannot be
read changes nothing and is said once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from interlock.errors import CatalogError

if TYPE_CHECKING:
    from interlock.catalog import Catalog

log = logging.getLogger("interlock.runtime")

#: Seconds between two looks at a file that has not changed, and until a changed one is looked at again.
LOOK_EVERY_S, SETTLED_S = 1.0, 0.25
#: No look of a file is this; that of one which is not there is None.
NOTHING = object()


class EditedCatalog:
    """`look` at instants of one's own choosing; it says when to come again."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._seen: object = NOTHING  # how the file looked when it last differed from what is in force
        self._refused: object = NOTHING  # how it looked when it could not be read
        self._complaint = ""

    @property
    def watched(self) -> bool:
        """Whether there is a file at all."""
        return self.catalog.path is not None

    def look(self) -> tuple[Catalog | None, float]:
        """(the catalog that takes the place of the one before, or None; seconds until the next look)."""
        stamp = self.catalog.stamp()
        if stamp == self.catalog.loaded_stamp:
            self._seen = self._refused = NOTHING
            self._complaint = ""
            return None, LOOK_EVERY_S
        if stamp == self._refused:
            return None, LOOK_EVERY_S
        if stamp != self._seen:
            self._seen = stamp
            return None, SETTLED_S
        try:
            fresh = self.catalog.reloaded()
        except CatalogError as error:
            self._refused = stamp
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("the catalog was edited and cannot be read, so the one before stays in force: %s", error)
            return None, LOOK_EVERY_S
        self._complaint, self._refused = "", NOTHING
        if fresh is self.catalog:
            return None, LOOK_EVERY_S
        log.info("the catalog was edited: version %s takes the place of %s", fresh.version, self.catalog.version)
        self.catalog = fresh
        return fresh, LOOK_EVERY_S
