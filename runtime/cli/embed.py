"""`interlock embed`: the lines of a file into a collection, or a collection into another model's vectors."""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.errors import ConfigurationError, InterlockError, SpendCapExceededError

from ..runtime import Runtime
from ..search.documents import DOCUMENTS
from ..search.embedding import MOST_REFUSED, EmbedTotals, embed_again, embed_documents, embedding_entry
from ..search.opening import open_collection
from ..settings import RuntimeSettings
from ..store.place import Place
from .catalog import load_catalog
from .configuring import NewStore, check_currency, checked_cap
from .documents import CheckedDocuments, DocumentLines, LineDocument
from .interrupts import Interrupts
from .lines import complain
from .telling import in_the_commands_words, told

if TYPE_CHECKING:
    from ..search.collection import Collection
    from ..search.documents import CollectionInfo

RECORDS = "sqlite:///interlock.db"
#: Refused documents named at the end.
MOST_TOLD = 20
#: Of fewer documents the rate would tell how long the model takes to begin.
RATED = 100


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    store: str
    input: Path | None = None
    field: str = "text"
    id_field: str | None = None
    collection: str = DOCUMENTS
    model: str | None = None
    re_embed: bool = False
    truncate: bool = False
    skip_bad: bool = False
    max_cost: str | None = None
    limit: int | None = None
    catalog: Path | None = None
    records: str = RECORDS
    verbose: bool = False

    def again(self) -> str:
        """The command line that goes on with what this one left."""
        given = {
            "--input": self.input,
            "--field": None if self.field == EmbedOptions.field else self.field,
            "--id-field": self.id_field,
            "--store": Place.of(self.store).name,
            "--collection": None if self.collection == DOCUMENTS else self.collection,
            "--model": self.model,
            "--limit": self.limit,
            "--max-cost": self.max_cost,
            "--catalog": self.catalog,
            "--records": None if self.records == RECORDS else Place.of(self.records).name,
        }
        words = ["interlock", "embed"]
        for flag, value in given.items():
            words += [flag, str(value)] if value is not None else []
        words += [f"--{name}" for name in ("re-embed", "truncate", "skip-bad") if getattr(self, name.replace("-", "_"))]
        return shlex.join(words)


def embed_file(options: EmbedOptions) -> int:
    """The exit code: 0 all good, 1 a document was refused or left, 130 stopped by Ctrl-C, 143 by SIGTERM. Raises for a
    wrong set-up."""
    if options.verbose:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("interlock").setLevel(logging.DEBUG)
    checked_cap(options.max_cost)
    if Place.of(options.store).in_memory:
        raise ConfigurationError(f"--store {options.store} ends with this command: name a file, sqlite:///docs.db")
    lines, checked = _checked(options)
    settings = RuntimeSettings(catalog=load_catalog(options.catalog), store=options.records, cost_cap=options.max_cost)
    check_currency(settings)
    work = EmbedRun(options, lines, checked)
    try:
        asyncio.run(work.run(settings))
    except KeyboardInterrupt:  # the third Ctrl-C, or the second where signals are not ours: at once
        work.interrupts.asked = signal.SIGINT
    if work.fatal is not None and not work.totals.stored:
        raise in_the_commands_words(work.fatal)
    code = work.tell()
    if work.fatal is not None:
        raise in_the_commands_words(work.fatal)
    return code


def _checked(options: EmbedOptions) -> tuple[DocumentLines | None, CheckedDocuments]:
    if options.input is None:
        if not options.re_embed:
            raise ConfigurationError("nothing to embed: name an --input, or --re-embed what the store holds")
        return None, CheckedDocuments()
    lines = DocumentLines(path=options.input, text=options.field, id=options.id_field)
    checked = lines.check()
    if checked.bad and not options.skip_bad:
        complain(options.input, checked.bad)
    return lines, checked


class EmbedRun:
    """One command's work. What the progress bar and the last words are made of is in `totals`."""

    def __init__(self, options: EmbedOptions, lines: DocumentLines | None, checked: CheckedDocuments) -> None:
        self._options, self._lines, self._checked = options, lines, checked
        self.totals = EmbedTotals()
        self.total = checked.good if options.limit is None else min(options.limit, checked.good)
        self.already = 0
        self.fatal: InterlockError | None = None
        self.capped: SpendCapExceededError | None = None
        self.interrupts = Interrupts(self._stop)
        self._stopping = False
        self._info: CollectionInfo | None = None
        self._began = self._took_s = 0.0

    @property
    def succeeded(self) -> int:
        return self.totals.stored + self.totals.unchanged

    @property
    def failed(self) -> int:
        return self.totals.refused_count

    def _stop(self) -> None:
        self._stopping = True

    async def run(self, settings: RuntimeSettings) -> None:
        from .watching import watched

        options, records = self._options, NewStore(settings.store)
        try:
            async with Runtime(settings) as runtime:
                embedding_entry(runtime, options.model)  # whether there is a model at all, before a store is opened
                async with await open_collection(options.store, options.collection, hold_mb=0) as collection:
                    work = asyncio.ensure_future(self._all(runtime, collection))
                    with self.interrupts.heard(work):
                        async with watched(self, runtime):
                            await self.interrupts.until_done(work)
                    self._took_s = time.monotonic() - self._began
                    self._info = await collection.info()
        except InterlockError as error:
            self.fatal = error
        finally:
            if not self.totals.stored:
                records.leave_nothing(())

    async def _all(self, runtime: Runtime, collection: Collection) -> None:
        options, self._began = self._options, time.monotonic()
        how: dict[str, Any] = {
            "model": options.model,
            "progress": self._progress,
            "stopping": lambda: self._stopping,
            "truncate": options.truncate,
            "workflow": "embed",
        }
        try:
            if options.re_embed:
                await self._again(runtime, collection, how)
            if self._lines is not None and not self._stopping:
                documents = self._lines.documents(self._checked, limit=options.limit)
                await embed_documents(runtime, collection, documents, **how)
        except SpendCapExceededError as error:
            self.capped = error
        except InterlockError as error:
            self.fatal = error

    async def _again(self, runtime: Runtime, collection: Collection, how: dict[str, Any]) -> None:
        info = await collection.info()
        if info is None and self._lines is not None:
            return  # nothing is stored yet, so all of it will be that model's
        lines = self.total
        self.total += 0 if info is None else info.count
        try:
            before = self.totals = await embed_again(runtime, collection, **how)
        except InterlockError:
            self.total = lines + self.succeeded + self.failed + await collection.switch()
            raise
        self.total = lines + before.stored + before.left
        how["progress"] = lambda totals: self._progress(_sum(before, totals))

    def _progress(self, totals: EmbedTotals) -> None:
        self.totals = totals

    def tell(self) -> int:
        """Say how it went, and how to go on where something is left."""
        print("\n".join(self._words()), file=sys.stderr)
        if self.interrupts.asked is not None:
            return 128 + self.interrupts.asked
        return int(bool(self.totals.refused) or self.capped is not None)

    def _words(self) -> list[str]:
        options, totals = self._options, self.totals
        rate = f", {totals.stored / self._took_s:,.0f} a second" if self._took_s and totals.stored >= RATED else ""
        parts = [f"{totals.stored:,} of {self.total:,} documents embedded{rate}"]
        parts += [f"{totals.unchanged:,} were stored before"] if totals.unchanged else []
        parts += [f"{len(self._checked.repeated):,} lines say the same again"] if self._checked.repeated else []
        parts += [f"{totals.refused_count:,} refused"] if totals.refused else []
        parts += [f"{len(self._checked.bad):,} bad lines left out"] if self._checked.bad else []
        parts += [f"{totals.tokens:,} tokens"] if totals.tokens else []
        parts += [f"{amount:.4f} {currency}" for currency, amount in totals.cost.items()]
        parts += ["of some calls the price is not known"] if totals.unpriced else []
        words = [f"{'; '.join(parts)}.", *self._refusals(), *self._bad_lines(), *self._stored()]
        if self.interrupts.asked is not None:
            words.append(f"Stopped by {_signal(self.interrupts.asked)}.")
        if self.capped is not None:
            words.append(f"Stopped at the cost cap: {told(self.capped)}")
        left = self.total - self.succeeded - self.failed
        if left > 0:
            words.append(f"{left:,} {'is' if left == 1 else 'are'} left. Go on with: {options.again()}")
        return words

    def _refusals(self) -> list[str]:
        named = [f"  {self._place(one.document)}: {one.reason}" for one in self.totals.refused[:MOST_TOLD]]
        more = self.failed - len(named)
        return [*named, f"  and {more:,} more"] if more > 0 else named

    def _bad_lines(self) -> list[str]:
        bad = self._checked.bad
        named = [f"  {self._options.input} line {line}: {reason}" for line, reason in list(bad.items())[:MOST_TOLD]]
        return [*named, f"  and {len(bad) - MOST_TOLD:,} more"] if len(bad) > MOST_TOLD else named

    def _place(self, document: Any) -> str:
        return f"{self._options.input} line {document.line}" if isinstance(document, LineDocument) else document.id

    def _stored(self) -> list[str]:
        info = self._info
        if info is None:  # or it could not be read at the end
            return [] if self.succeeded else ["Nothing was stored."]
        return [
            f"The collection {info.name} holds {info.count:,} documents with vectors of {info.model.entry}, "
            f"{info.width:,} wide."
        ]


def _sum(one: EmbedTotals, other: EmbedTotals) -> EmbedTotals:
    cost = dict(other.cost)
    for currency, amount in one.cost.items():
        cost[currency] = cost.get(currency, amount * 0) + amount
    return EmbedTotals(
        stored=one.stored + other.stored,
        unchanged=one.unchanged + other.unchanged,
        refused=(one.refused + other.refused)[:MOST_REFUSED],
        refused_count=one.refused_count + other.refused_count,
        tokens=one.tokens + other.tokens,
        cost=cost,
        unpriced=one.unpriced or other.unpriced,
    )


def _signal(asked: signal.Signals) -> str:
    return "Ctrl-C" if asked is signal.SIGINT else asked.name
