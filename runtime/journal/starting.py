"""What a Runtime's runs are journaled with, from its settings; and what is said of its databases."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from . import outcomes
from .run import Keeping

if TYPE_CHECKING:
    from ..dispatcher import Dispatcher

log = logging.getLogger("interlock.runtime")


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

    async def committed(run_id: str) -> Mapping[str, str]:
        return await outcomes.committed(telling, run_id) if telling else {}

    return Keeping(
        journal=journal,
        owner=getattr(journal, "owner", None) or uuid4().hex,
        wall=dispatcher.wall,
        redact=redact,
        catalog=lambda: dispatcher.desk.catalog,
        committed=committed,
        counted=dispatcher.counts.repeat,
        recorded=dispatcher.counts.add,
    )
