"""`interlock catalog check --credentials`: whether each account's credential is there and its provider takes it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..discovery.asking import Account, Answer, Said, accounts_of, ask_all, needed_credential
from .discover import asked, in_short

if TYPE_CHECKING:
    from rich.table import Table

    from interlock.catalog import Catalog
    from interlock.credentials import Chain


def check_credentials(catalog: Catalog, *, ask: bool) -> int:
    """Print the table and what a pin lacks. 1: of some pin nothing can be called; 0: of each something can."""
    from interlock.credentials import Chain

    from .screen import screen

    credentials, accounts = Chain.default(), accounts_of(catalog)
    answers = asked(ask_all, accounts, catalog, credentials) if ask else _looked_at(accounts, catalog, credentials)
    screen().print(_table(answers, catalog, credentials))
    lacking = _lacking(answers, catalog)
    for line in lacking:
        print(line, file=sys.stderr)
    return 1 if lacking else 0


def _looked_at(accounts: list[Account], catalog: Catalog, credentials: Chain) -> list[Answer]:
    """What is there and well-formed, without a request."""
    from ..desk import why_not

    answers = []
    for account in accounts:
        reason = why_not(account.stand_in(), catalog, credentials)
        said = Said.NO_LIST if reason is None else Said.NOT_ASKED
        remedy = reason.remedy if reason is not None else ""
        answers.append(Answer(account=account, said=said, why=str(reason or "there, and well-formed"), remedy=remedy))
    return answers


def _table(answers: list[Answer], catalog: Catalog, credentials: Chain) -> Table:
    from rich.table import Table

    from ..printable import cell

    table = Table(box=None, pad_edge=False)
    table.add_column("provider", no_wrap=True)
    table.add_column("credential", no_wrap=True)
    table.add_column("from", overflow="fold", max_width=56)
    table.add_column("accepted", overflow="fold")
    for answer in answers:
        name, source = _credential(answer.account, catalog, credentials)
        where = f" at {answer.account.base_url}" if answer.account.base_url else ""
        state = credentials.redactor.redact(_state(answer))
        table.add_row(*map(cell, (answer.account.provider + where, name, source, state)))
    return table


def _credential(account: Account, catalog: Catalog, credentials: Chain) -> tuple[str, str]:
    """Its id and the places where something of it stands; never a value."""
    from interlock.errors import ConfigurationError

    try:
        needed = needed_credential(account, catalog)
    except ConfigurationError:
        named = account.credential or catalog.provider(account.provider).credential
        return named or "", ""
    if needed.id is None:
        return "none", ""
    places = credentials.places(needed.id, needed.shape, aliases=needed.aliases)
    there = [
        f"{place}{'' if state == 'set' else f' ({state})'}" for place, state in places.items() if state != "not set"
    ]
    if there:
        return needed.id, ", ".join(there)
    return needed.id, "the cloud's own chain" if needed.shape.optional else "nowhere"


def _state(answer: Answer) -> str:
    if answer.said is Said.LISTED:
        return f"accepted: {len(answer.models):,} models, {answer.took_s:.1f} s"
    if answer.said is Said.NO_LIST:
        return f"not asked: {answer.why}"
    if answer.said is Said.NOT_ASKED:
        return f"no: {in_short(answer)}"
    return f"{'refused' if answer.said is Said.REFUSED else 'not known'}: {answer.why}"


def _lacking(answers: list[Answer], catalog: Catalog) -> list[str]:
    """The pins of which no entry can be called. What could not be asked, for want of a list, counts as callable."""
    from interlock.catalog.words import Status

    fine = {
        entry.id
        for answer in answers
        if answer.said in (Said.LISTED, Said.NO_LIST)
        for entry in answer.account.entries
        if entry.status is Status.OPEN
    }
    return [
        f"pin {getattr(key, 'name', key)}: none of {', '.join(ids)} can be called with these credentials"
        for key, ids in catalog.pins.items()
        if ids and not fine.intersection(ids)
    ]
