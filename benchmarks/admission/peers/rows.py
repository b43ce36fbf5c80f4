"""The rows of the table: how many callers, what the provider publishes, and what it really serves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

RPM, TPM, BURST_S = 600.0, 240_000.0, 60.0
MANY_CALLERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`shares` are (from_s, share of the published rates). `storm` is (from_s, until_s, share answered with a 529).

    Callers arrive evenly over `arriving_s`. Goodput and waits are those from `since_s` on, until the row ends; `also`
    is a second window to state the goodput of: its name, and from when until when.
    """

    name: str
    title: str
    callers: int
    shares: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    storm: tuple[float, float, float] | None = None
    arriving_s: float = 10.0
    since_s: float = 120.0
    until_s: float = 300.0
    also: tuple[str, float, float] | None = None
    seed: int = 1
    rpm: float = RPM
    tpm: float = TPM
    burst_s: float = BURST_S

    def lasting(self, minutes: float) -> Row:
        """The same row, ended earlier or later. One that changes on the way lasts as long as it must."""
        return self if self.storm or len(self.shares) > 1 else replace(self, until_s=minutes * 60)

    def heats(self, names: Sequence[str], hungry: Collection[str]) -> list[list[str]]:
        """Who runs beside whom. With hundreds of callers the `hungry` each need the machine to themselves, or nobody
        beside them could be measured; the SDK's second setting is left out there."""
        if self.callers < MANY_CALLERS:
            return [list(names)] if names else []
        together = [name for name in names if name not in hungry and name != "sdk-20"]
        return [heat for heat in (together, *([name] for name in names if name in hungry)) if heat]

    def rates(self) -> list[tuple[float, float]]:
        """(from_s, tokens a second) really served."""
        return [(from_s, self.tpm / 60 * share) for from_s, share in self.shares]

    def could_serve(self, since_s: float, until_s: float) -> float:
        """Tokens the provider refills in a window."""
        ends = [*(from_s for from_s, _ in self.shares[1:]), float("inf")]
        return sum(
            max(0.0, min(end, until_s) - max(from_s, since_s)) * rate
            for (from_s, rate), end in zip(self.rates(), ends, strict=True)
        )


def _steady(callers: int, percent: int) -> Row:
    return Row(
        name=f"{callers}-{percent}",
        title=f"{callers} callers, the provider serves {percent}%",
        callers=callers,
        shares=((0.0, percent / 100),),
        arriving_s=10.0 if callers < MANY_CALLERS else 30.0,
    )


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        *(_steady(callers, percent) for callers in (50, 500) for percent in (100, 60, 30)),
        Row(
            name="storm",
            title="50 callers, 5% answered with a 529 for a minute",
            callers=50,
            storm=(90.0, 150.0, 0.05),
            since_s=210.0,
            also=("in the storm", 90.0, 150.0),
        ),
        Row(
            name="step",
            title="50 callers, 30% until the provider serves 100% again",
            callers=50,
            shares=((0.0, 0.3), (120.0, 1.0)),
            since_s=180.0,
            also=("in the minute after the step", 120.0, 180.0),
        ),
    )
}
