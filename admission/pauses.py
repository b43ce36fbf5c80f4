"""Keeping the garbage collector from stopping the loop while very many wait.

Python's full collections look at every object there is, and a waiting demand is half a dozen: with a million waiting
one collection takes over a second, and nothing else happens meanwhile. Whoever waits is no garbage, so looking at it is
vain. `gc.freeze` takes what there is out of the collector's sight, at once and however much it is. So from `FROM`
waiting on, after every `EVERY` that came to wait, what came since is collected (a few milliseconds) and the rest
frozen. When few wait again everything is handed back.

The side effect: garbage in reference cycles that were frozen is not freed before then. What is freed by its count of
references, as almost everything here is, is freed as always. A program that freezes by itself (before it forks, say) is
left alone: nothing is frozen or handed back here. `Admission(freeze=False)` turns it off.
"""

from __future__ import annotations

import gc
from math import inf

FROM = 2_000
EVERY = 500


class Pauses:
    """`came` is to be called for each that begins to wait, `went` now and then, both with how many wait by now."""

    __slots__ = ("_next", "_since", "frozen")

    def __init__(self, *, freeze: bool = True) -> None:
        self._since = 0
        self._next: float = EVERY if freeze else inf
        self.frozen = False

    def came(self, waiting: int) -> None:
        self._since += 1
        if self._since >= self._next:
            self._since = 0
            if waiting >= FROM:
                self._freeze()

    def _freeze(self) -> None:
        if not self.frozen:
            if gc.get_freeze_count() or not gc.isenabled():
                return
            gc.collect(1)  # a full one would look at the whole program once more
            self.frozen = True
        else:
            gc.collect()
        gc.freeze()

    def went(self, waiting: int) -> None:
        if self.frozen and waiting < FROM // 2:
            self.frozen = False
            gc.unfreeze()

    def __del__(self) -> None:
        """An admission that is dropped while very many wait leaves nothing frozen behind."""
        if self.frozen:
            gc.unfreeze()
