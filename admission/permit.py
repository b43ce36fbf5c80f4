"""What admission hands to whoever sends: the right to one wire request, closed exactly once."""

from __future__ import annotations

from typing import Protocol

from .outcome import CallOutcome


class CallPermit(Protocol):
    """One wire request that was reserved for. Neither method ever waits.

    `sent()` is called before the first byte leaves; a permit that was never sent gives everything back when it is
    closed or when its job ends. Only the first `close` counts.
    """

    @property
    def unmetered(self) -> bool:
        """Whether it goes without a reservation (`overflow="proceed"`)."""
        ...

    @property
    def undeclared(self) -> bool:
        """Whether it was charged as debt: beyond the calls, or larger than the size, that its job declared."""
        ...

    def sent(self) -> None: ...

    def close(self, outcome: CallOutcome) -> None: ...
