"""How replies are kept and how messages travel: as flat numbers. A reply is kept until the next message has come."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from .message import LevelState, PoolState, Reply
from .rows import DIMENSIONS

#: Numbers of a pool, and of each of its levels.
POOL, LEVEL = 11, 7


def reply(seq: int, names: Sequence[str], granted: Sequence[int], flat: Sequence[float]) -> Reply:
    """From what `rules.exchange` says, or a row keeps. `names` are the message's pools, in order."""
    return Reply(seq=seq, granted=tuple(granted), pools={state.pool: state for state in pool_states(names, flat)})


def pool_states(names: Sequence[str], flat: Sequence[float]) -> list[PoolState]:
    states: list[PoolState] = []
    at = 0
    for name in names:
        version, epoch, hold_s, closed_s, slowdown, calm, slots, out, fit_s, claims, count = flat[at : at + POOL]
        at += POOL
        levels: list[LevelState] = []
        for _ in range(int(count)):
            dimension, capacity, published, free, full_ago_s, opened_ago_s, used = flat[at : at + LEVEL]
            at += LEVEL
            levels.append(
                LevelState(
                    dimension=DIMENSIONS[int(dimension)],
                    capacity=capacity,
                    published_rate_per_s=published,
                    free=free,
                    full_ago_s=full_ago_s,
                    opened_ago_s=opened_ago_s if opened_ago_s != -inf else inf,
                    used=None if used < 0 else used,
                )
            )
        states.append(
            PoolState(
                pool=name,
                version=int(version),
                epoch=int(epoch),
                hold_in_s=hold_s,
                closed_in_s=closed_s,
                slowdown=slowdown,
                calm=bool(calm),
                levels=tuple(levels),
                slots=None if slots < 0 else (int(slots), int(out)),
                fit_in_s=None if fit_s < 0 else fit_s,
                claims=int(claims),
            )
        )
    return states
