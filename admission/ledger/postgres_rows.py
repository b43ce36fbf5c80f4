"""Rows and messages as PostgreSQL has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .message import Message
from .rows import Claim, LevelRow, PoolRow, TotalRow

#: Numbers of a settle.
SETTLE = 21
#: The columns of a pool that are arrays, in the order of `LevelRow`'s fields.
ARRAYS = (
    "dimension", "part", "kind", "capacity", "published", "rate", "at", "mark", "unsent", "held", "owed", "over",
    "opened_at",
)  # fmt: skip
SCALARS = (
    "name", "limits", "version", "clock", "epoch", "slowdown", "calm", "held_until", "closed_until", "slots", "look_at",
    "learnt",
)  # fmt: skip

_COLUMNS = (*SCALARS, *ARRAYS)
SAVE_POOL = (
    f"insert into ledger_pools ({', '.join(_COLUMNS)}) values ({', '.join(f'${n + 1}' for n in range(len(_COLUMNS)))}) "
    f"on conflict (name) do update set {', '.join(f'{column} = excluded.{column}' for column in _COLUMNS[1:])}"
)
MAKE_POOL = SAVE_POOL.partition(" on conflict ")[0] + " on conflict (name) do nothing"

_TOTAL = (
    "pool", "fence", "slots", "unsent", "granted", "claim_priority", "claim_since", "claim_key", "claim_charge",
    "claim_slots", "claim_lapses_at",
)  # fmt: skip
SAVE_TOTAL = (
    f"insert into ledger_totals ({', '.join(_TOTAL)}) values ({', '.join(f'${n + 1}' for n in range(len(_TOTAL)))}) "
    f"on conflict (pool, fence) do update set {', '.join(f'{column} = excluded.{column}' for column in _TOTAL[2:])}"
)


def pool_row(found: Mapping[str, Any]) -> PoolRow:
    levels = [LevelRow(*values) for values in zip(*[found[column] for column in ARRAYS], strict=True)]
    return PoolRow(**{column: found[column] for column in SCALARS}, levels=levels)


def pool_values(row: PoolRow) -> list[Any]:
    """For `SAVE_POOL`."""
    levels = [
        (
            level.dimension, level.part, level.kind, level.capacity, level.published, level.rate, level.at, level.mark,
            level.unsent, level.held_until, level.owed, level.over, level.opened_at,
        )
        for level in row.levels
    ]  # fmt: skip
    return [
        row.name, row.limits, row.version, row.clock, row.epoch, row.slowdown, row.calm, row.held_until,
        row.closed_until, row.slots, row.look_at, row.learnt, *[list(column) for column in zip(*levels, strict=True)],
    ]  # fmt: skip


def total_row(found: Mapping[str, Any]) -> TotalRow:
    total = TotalRow(found["slots"], list(found["unsent"]), found["granted"])
    if found["claim_key"] is not None:
        total.claim = Claim(
            found["claim_priority"],
            found["claim_since"],
            found["claim_key"],
            tuple(found["claim_charge"]),
            found["claim_slots"],
            found["claim_lapses_at"],
        )
    return total


def total_values(pool: str, fence: int, total: TotalRow) -> list[Any]:
    """For `SAVE_TOTAL`."""
    claim = total.claim
    claimed: list[Any] = [None] * 6
    if claim is not None:
        claimed = [claim.priority, claim.since, claim.key, list(claim.charge), claim.slots, claim.lapses_at]
    return [pool, fence, total.slots, total.unsent, total.granted, *claimed]


def arguments(message: Message, names: Sequence[str], transit_s: float) -> list[Any]:
    """What the function is called with."""
    places = {name: place for place, name in enumerate(names)}
    settles: list[float] = []
    if message.settles:
        settles = [0.0] * (SETTLE * len(names))
        for settle in message.settles:
            at = SETTLE * places[settle.pool]
            counts = (*settle.back, *settle.eased, *settle.sent, *settle.left, settle.slots, *settle.day)
            settles[at : at + SETTLE] = counts
    keys, priorities, part_asks, part_pools, amounts = [], [], [], [], list[float]()
    wanted: list[list[tuple[float, ...]]] = [[] for _ in names]
    for number, ask in enumerate(message.asks, 1):
        keys.append(ask.key)
        priorities.append(ask.priority)
        for part in ask.parts:
            part_asks.append(number)
            place = places[part.pool]
            part_pools.append(place + 1)
            whole = (*part.charge, part.slots, 1)
            wanted[place].append(whole)
            amounts += whole[:5]
    sums = [float(sum(column)) for parts in wanted for column in zip(*(parts or [(0,) * 6]), strict=True)]
    return [
        message.fence, message.seq, names, settles, keys, priorities, part_asks, part_pools, amounts, sums, transit_s
    ]  # fmt: skip
