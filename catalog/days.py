"""When a provider's day begins again: an instant of each local day, exact over every change of the clocks. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

#: A limit per day that has no reset: it refills continuously, as most token buckets do.
ROLLING = "rolling"

_FORM = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9]) (\S+)")


@dataclass(frozen=True, slots=True)
class DayReset:
    """`hour:minute` of each day in `zone`. A time that a day skips comes as long after midnight as on any other day; of
    one that a day has twice, the first counts."""

    hour: int
    minute: int
    zone: ZoneInfo

    def last(self, moment: datetime) -> datetime:
        """The latest reset at or before `moment` (which knows its zone), in UTC."""
        return max(reset for reset in self._around(moment) if reset <= moment)

    def next(self, moment: datetime) -> datetime:
        """The first reset after `moment`, in UTC."""
        return min(reset for reset in self._around(moment) if reset > moment)

    def _around(self, moment: datetime) -> list[datetime]:
        day = moment.astimezone(self.zone).date()
        days = [day + timedelta(days=n) for n in (-2, -1, 0, 1, 2)]  # two: a zone may once leave out a whole day
        return [
            datetime(each.year, each.month, each.day, self.hour, self.minute, tzinfo=self.zone).astimezone(UTC)
            for each in days
        ]


@lru_cache(maxsize=64)
def day_reset(text: str) -> DayReset | None:
    """From `HH:MM Zone/Name`; None for `rolling`. ValueError says what is wrong with anything else."""
    if text == ROLLING:
        return None
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(
            f"must be rolling, or a time and its zone such as 00:00 America/Los_Angeles, not {text[:60]!r}"
        )
    try:
        zone = ZoneInfo(found[3])
    except (ValueError, OSError, LookupError):  # LookupError: ZoneInfoNotFoundError
        raise ValueError(f"there is no time zone {found[3][:60]!r}: write it as America/Los_Angeles, or UTC") from None
    return DayReset(int(found[1]), int(found[2]), zone)
