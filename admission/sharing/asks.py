"""Which demands are asked for next: the heads that lack nothing but what the ledger has, then whoever follows. Pure.

The heads are asked for in the line's order. Who follows them is a forecast: what is granted is a credit, and the line
gives it to whoever is next when it comes. So only the sum has to be about right; what is left over goes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..accounts import EPS
from ..ledger.message import MOST_ASKS
from ..queues import WAITING, Group, Waiter
from .accounts import SharedLevel

if TYPE_CHECKING:
    from ..line import Line


def next_asks(line: Line, now: float, most: int = MOST_ASKS) -> list[Any]:
    """At most so many waiters, those to be granted first first."""
    heads = [group.head for group in line.groups if group.head is not None and _is_ready(group)]
    heads.sort(key=lambda head: (head.rank, head.ticket))
    found = heads[:most]
    behind = [islice(_behind(head.group, now), _window(head.group) - 1) for head in found]
    while behind and len(found) < most:
        for followers in list(behind):
            follower = next(followers, None)
            if follower is None:
                behind.remove(followers)
            elif len(found) < most:
                found.append(follower)
    return found


def _window(group: Group) -> int:
    """How many of a group are worth asking for: about as many as its pools have granted lately."""
    return min(account.link.window for account in group.accounts if isinstance(account, SharedLevel))


def _is_ready(group: Group) -> bool:
    return group.watch is not None and group.watch.asked


def _behind(group: Group, now: float) -> Iterator[Waiter]:
    """Who comes after the head, for as long as what is not the ledger's will do for them too."""
    assert group.head is not None
    own = [(i, account) for i, account in enumerate(group.accounts) if not account.asked]
    room = [account.free(now) - group.head.amounts[i] for i, account in own]
    for waiter in _in_turn(group):
        for place, (i, _) in enumerate(own):
            room[place] -= waiter.amounts[i]
        if any(left + EPS < 0 for left in room):
            return
        yield waiter


def _in_turn(group: Group) -> Iterator[Waiter]:
    """Those that came back, by ticket; then one of each workflow in turn, the higher priorities first."""
    for _, _, waiter in sorted(group.returned):
        if waiter.state == WAITING:
            yield waiter
    flows = sorted(group.flows.values(), key=lambda flow: (flow.rank, flow.share.vtime, flow.number))
    for rank in dict.fromkeys(flow.rank for flow in flows):
        turns = [iter(flow) for flow in flows if flow.rank == rank and len(flow)]
        while turns:
            for turn in list(turns):
                found = next((each for each in turn if each.state == WAITING), None)
                if found is None:
                    turns.remove(turn)
                else:
                    yield found
