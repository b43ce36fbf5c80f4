"""What a Runtime's runs are journaled with, from its settings; and what is said of its databases."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ..ledger import in_this_loop
from . import outcomes

if TYPE_CHECKING:
    from interlock.catalog import Catalog
    from interlock.errors import LeaseLostError

    from ..dispatcher import Dispatcher
    from ..store.rows import CallRow
    from .protocol import Journal
    from .replay import Again

log = logging.getLogger("interlock.runtime")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What the runs of one Runtime share. `committed` reads what a user's databases say of a run; they `forget` what
    they say of some of its steps."""

    journal: Journal
    owner: str
    wall: Callable[[], datetime]
    redact: Callable[[str], str]
    catalog: Callable[[], Catalog]
    committed: Callable[[str], Awaitable[Mapping[str, str]]]
    forget: Callable[[str, Collection[str]], Awaitable[None]]
    counted: Callable[[Again], None]
    replayed: Callable[[], None]
    recorded: Callable[[CallRow], None]


async def keeping_of(dispatcher: Dispatcher, redact: Callable[[str], str]) -> Keeping | None:
    """None where nothing is journaled. Raises ConfigurationError for a database that cannot keep outcomes."""
    settings = dispatcher.settings
    given: Any = settings.journal
    journal = getattr(dispatcher.book, "journal", None) if given is True else (given or None)
    if journal is None:
        return None
    telling = [provider for provider in settings.databases if provider.outcomes]
    for provider in settings.databases:
        if not provider.outcomes:
            log.info(
                "database %r is registered without outcomes=True: a step that commits there is done at least once, and"
                " once more where the process ends right after its COMMIT",
                provider.name,
            )
    await outcomes.prepare(telling)
    listen = getattr(dispatcher.book, "on_lost", None) if given is True else None
    if listen is not None:
        listen(in_this_loop(partial(_lose, dispatcher)))

    async def committed(run_id: str) -> Mapping[str, str]:
        return await outcomes.committed(telling, run_id) if telling else {}

    async def forget(run_id: str, steps: Collection[str]) -> None:
        await outcomes.forget(telling, run_id, steps)

    return Keeping(
        journal=journal,
        owner=getattr(journal, "owner", None) or uuid4().hex,
        wall=dispatcher.wall,
        redact=redact,
        catalog=lambda: dispatcher.desk.catalog,
        committed=committed,
        forget=forget,
        counted=dispatcher.counts.repeat,
        replayed=dispatcher.counts.read_back,
        recorded=dispatcher.counts.add,
    )


def _lose(dispatcher: Dispatcher, error: LeaseLostError) -> None:
    """Another process may have this one's runs: what belongs to a run stops."""
    for execution in list(dispatcher.live):
        if execution.run.journal is not None:
            execution.stop_for(error)
