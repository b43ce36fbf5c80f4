"""For how long somebody stood short of each account."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.admission import Account


class Shortage:
    """Looks at the accounts whenever something has happened; in between nothing changes who stands short of what."""

    __slots__ = ("_accounts", "_looked_at", "_seconds", "_short")

    def __init__(self, accounts: Iterable[Account], now: float) -> None:
        self._accounts, self._looked_at = tuple(accounts), now
        self._seconds = dict.fromkeys(self._accounts, 0.0)
        self._short: list[Account] = []

    def look(self, now: float) -> None:
        """Book the time since the last look."""
        if now > self._looked_at:
            for account in self._short:
                self._seconds[account] += now - self._looked_at
            self._looked_at = now
        self._short = [account for account in self._accounts if account.watchers]

    def seconds(self) -> dict[str, float]:
        """By the account's name."""
        return {account.name: seconds for account, seconds in self._seconds.items()}
