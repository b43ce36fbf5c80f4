"""What each workflow has had of a leading account, in seconds of it: virtual time. `line.py` has the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .accounts import Account

#: So many workflows are remembered before those that are of no account are forgotten.
REMEMBERED = 1_024


class Share:
    """What one workflow has had of a leading account, in seconds of it."""

    __slots__ = ("credit", "vtime", "waiting")

    def __init__(self, vtime: float) -> None:
        self.vtime, self.credit, self.waiting = vtime, 0.0, 0


def join(lead: Account, workflow: str) -> Share:
    """The workflow's share there. One that begins starts where the account stands, if it is not ahead of that."""
    share = lead.shares.get(workflow)
    if share is None:
        if len(lead.shares) >= lead.remembered:
            # Whoever neither waits nor is ahead of the account would start where it stands now.
            lead.shares = {k: s for k, s in lead.shares.items() if s.waiting or s.vtime > lead.vtime}
            lead.remembered = max(2 * len(lead.shares), REMEMBERED)
        share = lead.shares[workflow] = Share(lead.vtime)
    elif not share.waiting and share.vtime < lead.vtime:
        share.vtime = lead.vtime
    return share


def charge(lead: Account, share: Share, cost: float) -> None:
    """A workflow has had so many seconds of the account."""
    charged = cost
    if share.credit:
        charged = max(cost - share.credit, 0.0)
        share.credit -= cost - charged
    share.vtime = vtime = share.vtime + charged
    if vtime > lead.furthest:
        lead.furthest = vtime
    lead.vtime += cost / lead.active if lead.active else cost  # what each waiting workflow was owed meanwhile
