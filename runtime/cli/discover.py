"""`interlock catalog discover`: what the credentials can call, beside what the catalog says."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..discovery.asking import Account, Answer, Said, accounts_of, ask_all
from ..discovery.comparing import Difference, compare
from ..discovery.writing import new_entries, statuses, write

if TYPE_CHECKING:
    from rich.table import Table

    from interlock.catalog import Catalog
    from interlock.credentials import Chain

#: New models of a provider that are shown, unless all are asked for.
SHOWN = 20
INTERRUPTED = 130

Ask = Callable[[Sequence[Account], "Catalog", "Chain", Callable[[Answer], None]], Coroutine[Any, Any, list[Answer]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverOptions:
    """`file`: the catalog to begin with, None: the one to write or the one that ships. `providers`: only these."""

    file: Path | None = None
    write: Path | None = None
    providers: tuple[str, ...] = ()
    mark_unreachable: bool = False
    every: bool = False


def discover(options: DiscoverOptions) -> int:
    """Ask, print, and write where that was asked for. 1: no provider gave a list; 0 otherwise."""
    from interlock.catalog.editing import marked_by_discover
    from interlock.credentials import Chain
    from interlock.errors import ConfigurationError

    from ..printable import cell
    from .catalog import load_catalog
    from .screen import screen

    if options.write is not None and options.file is not None and options.write.resolve() != options.file.resolve():
        raise ConfigurationError(
            f"what is written is the catalog that is read: {options.file} and {options.write} are two"
        )
    file = options.write or options.file
    catalog = load_catalog(file)
    text = "" if file is None else file.read_bytes().decode("utf-8-sig")
    credentials = Chain.default()
    answers = asked(ask_all, accounts_of(catalog, options.providers), catalog, credentials)
    differences = compare(answers, marked_by_discover(text, str(file)) if text else frozenset())
    console = screen()
    if (table := _table(differences, every=options.every)).row_count:
        console.print(table)
    for line in _not_listed(differences, credentials):
        console.print(cell(line), style="dim", soft_wrap=True)
    if options.write is not None:
        print(_written(options, catalog, differences))
    return 0 if any(answer.said is Said.LISTED for answer in answers) else 1


def asked(ask: Ask, accounts: Sequence[Account], catalog: Catalog, credentials: Chain) -> list[Answer]:
    """Their answers. Each is told on standard error as it comes; Ctrl-C ends the command, and nothing has changed."""

    def tell(answer: Answer) -> None:
        if answer.said in (Said.NOT_ASKED, Said.NO_LIST):
            return
        what = f"{len(answer.models):,} models" if answer.said is Said.LISTED else answer.said.value
        print(f"{answer.account.provider}: {what} ({answer.took_s:.1f} s)", file=sys.stderr)

    try:
        return asyncio.run(ask(accounts, catalog, credentials, tell))
    except KeyboardInterrupt:
        print("interlock: interrupted; nothing was written", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def _table(differences: Sequence[Difference], *, every: bool) -> Table:
    from rich.table import Table

    from ..printable import cell

    table = Table(box=None, pad_edge=False)
    for name in ("provider", "entry", "wire model", "found"):
        table.add_column(name, overflow="fold")

    def add(*cells: str) -> None:
        table.add_row(*map(cell, cells), style="bold" if cells[-1] == "no longer listed" else None)

    for difference in differences:
        provider = difference.answer.account.provider
        for entry in difference.here:
            state = "listed again" if entry in difference.back else _listed(entry.status.value)
            add(provider, entry.id, entry.wire_model_id, state)
        for entry in difference.gone:
            add(provider, entry.id, entry.wire_model_id, "no longer listed")
        shown = difference.new if every else difference.new[:SHOWN]
        for model in shown:
            add(provider, "", model.wire_model_id, "new")
        if len(shown) < len(difference.new):
            add(provider, "", f"and {len(difference.new) - len(shown):,} more (--all)", "new")
    return table


def in_short(answer: Answer) -> str:
    """What would help, or why there is no list."""
    if answer.why.startswith("no provider"):
        return "no such provider is installed"
    return answer.remedy or answer.why


def _listed(status: str) -> str:
    return "listed" if status == "open" else f"listed ({status} here)"


def _not_listed(differences: Sequence[Difference], credentials: Chain) -> list[str]:
    """A line for each account of which nothing is known, and why; then how many models were left out."""
    lines = []
    for difference in differences:
        answer = difference.answer
        if answer.said is not Said.LISTED:
            lines.append(
                credentials.redactor.redact(f"{answer.account.provider}: {answer.said.value}: {in_short(answer)}")
            )
        elif not answer.models:
            lines.append(f"{answer.account.provider}: lists no model at all; nothing is concluded from that")
        if difference.not_chat:
            lines.append(f"{answer.account.provider}: {difference.not_chat:,} listed models are not for chat: left out")
    return lines


def _written(options: DiscoverOptions, catalog: Catalog, differences: Sequence[Difference]) -> str:
    assert options.write is not None
    today = date.today()
    wanted = statuses(differences, mark_unreachable=options.mark_unreachable)
    entries = new_entries(differences, catalog, today)
    if not wanted and not entries:
        return f"{options.write}: nothing to change"
    write(options.write, catalog, wanted, entries, today)
    counts = {name: list(wanted.values()).count(name) for name in dict.fromkeys(wanted.values())}
    parts = [f"{count:,} {status.value}" for status, count in counts.items()]
    if entries:
        parts.append(f"{len(entries):,} new (give them your account's limits, and prices where they have none)")
    return f"{options.write}: written: {'; '.join(parts)}"
