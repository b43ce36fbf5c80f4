"""An entry for a model that a provider lists and the catalog has not.

What the shipped catalog knows of the same model is taken over: all of it through the same provider; through another, or
under another region's id, what belongs to the model and not to the way to it (grade, window, inputs), without a price.
Of any other model only the list is known: it gets the lowest grade, the one claim that cannot be too high, and
`named_only`, so that nothing picks it until somebody has looked at it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date
from enum import Enum
from functools import cache
from itertools import chain, count
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from interlock.catalog import Catalog, ModelEntry
from interlock.catalog.adding import NewEntry
from interlock.catalog.pricebook import candidates
from interlock.catalog.words import Grade, Kind, Status
from interlock.clients.listing import ListedModel

from .asking import Account

#: What belongs to a model whoever serves it.
_OF_THE_MODEL = ("identity", "grade", "context_window", "max_output_tokens", "inputs", "thinking", "unsupported")
#: What is never taken over: it belongs to the entry, the account, or stands in another file.
_ITS_OWN = frozenset({
    "id", "provider", "wire_model_id", "kind", "limits", "fallbacks", "status", "credential", "base_url",
})  # fmt: skip


def entry_for(model: ListedModel, account: Account, catalog: Catalog, taken: Collection[str], today: date) -> NewEntry:
    known, same_way = _known(model, account.provider)
    pools: dict[str, dict[str, Any]] = {}
    fields: dict[str, Any] = {"id": _free_id(known.id if known and same_way else model.wire_model_id, account, taken)}
    comments = [_plain(model.name)] if model.name and model.name != model.wire_model_id else []
    if known is None:
        fields |= {"grade": Grade.MICRO, **_told(model), "named_only": True}
        comments.append(
            "Assumed: the lowest grade, and picked by name only. The list tells neither strength nor price."
        )
    elif same_way:
        fields |= _facts(known, account, catalog)
        stated = _as_written(_shipped().limits_of(known)[1])
        if known.limits.pool is None:
            fields |= {"limits": stated} if stated else {}
        else:
            name = _pool_name(known.limits.pool, account)
            fields["limits"] = {"pool": name}
            if name not in catalog.pools:
                pools[name] = stated
                comments += _on_the_pool(name, known.limits.pool, account)
    else:
        facts = {name: getattr(known, name) for name in _OF_THE_MODEL if name in known.model_fields_set}
        fields |= {**facts, **_told(model), "named_only": True}
        comments.append(
            f"Assumed: as strong and as large as {known.wire_model_id} of {known.provider}. No price is known."
        )
    fields |= {"provider": account.provider, "wire_model_id": model.wire_model_id}
    fields |= {name: own for name in ("credential", "base_url") if (own := getattr(account, name)) is not None}
    ceiling = _ceiling(catalog)
    if ceiling is not None and ceiling < fields["grade"]:
        fields["status"] = Status.DISABLED
        comments.append("Disabled: it is stronger than what CEILING is pinned to.")
    first = ("id", "identity", "grade", "provider", "wire_model_id")
    ordered = {name: fields[name] for name in (*first, *fields) if name in fields}
    written = {name: _as_written(value) for name, value in ordered.items()}
    return NewEntry(fields=written, comments=comments, pools=pools)


@cache
def _shipped() -> Catalog:
    return Catalog.default()


@cache
def _by_name() -> Mapping[str, ModelEntry]:
    """The shipped chat entries by every name of their models: without region, date and version, too."""
    found: dict[str, ModelEntry] = {}
    for entry in _shipped().entries.values():
        if entry.kind is Kind.CHAT:
            for name in candidates(entry.wire_model_id):
                found.setdefault(name, entry)
    return found


def _known(model: ListedModel, provider: str) -> tuple[ModelEntry | None, bool]:
    """The shipped entry of that model, and whether it is reached the same way: by this id through this provider."""
    for entry in _shipped().entries.values():
        if (entry.kind, entry.provider, entry.wire_model_id) == (Kind.CHAT, provider, model.wire_model_id):
            return entry, True
    names = _by_name()
    return next((names[name] for name in candidates(model.wire_model_id) if name in names), None), False


def _facts(known: ModelEntry, account: Account, catalog: Catalog) -> dict[str, Any]:
    """What the shipped entry states and the file's own defaults do not."""
    defaults = catalog.defaults.get(account.provider, {})
    plain = ModelEntry.model_validate(
        {"grade": Grade.MICRO, **defaults, "id": "m", "provider": account.provider, "wire_model_id": "m"}
    )
    return {
        name: getattr(known, name)
        for name in ModelEntry.model_fields
        if name not in _ITS_OWN and (name == "grade" or getattr(known, name) != getattr(plain, name))
    }


def _pool_name(pool: str, account: Account) -> str:
    """Entries with a credential or an address of their own are another account's, with limits of its own; unless the
    file says that they draw on the same."""
    own = account.credential or (urlsplit(account.base_url).hostname if account.base_url else None)
    if own is None or any(entry.limits.pool == pool for entry in account.entries):
        return pool
    return f"{pool}-{own}"


def _on_the_pool(name: str, pool: str, account: Account) -> list[str]:
    """What is to be said of a pool that is put in: whose limits it has, and which entries share them."""
    twins = {(e.provider, e.wire_model_id) for e in _shipped().entries.values() if e.limits.pool == pool}
    apart = [e.id for e in account.entries if (e.provider, e.wire_model_id) in twins and e.limits.pool is None]
    said = [f"Limits: the pool {name}, as shipped. Write your account's there."]
    if apart:
        verb = "draws" if len(apart) == 1 else "draw"
        said.append(f"{', '.join(apart)} {verb} on the same limits: state `limits: {{pool: {name}}}` there too.")
    return said


def _told(model: ListedModel) -> dict[str, Any]:
    window, most = model.context_window, model.max_output_tokens
    if window is not None and most is not None and most > window:
        most = None
    told = {"context_window": window, "max_output_tokens": most, "inputs": model.inputs}
    return {name: value for name, value in told.items() if value is not None}


def _free_id(name: str, account: Account, taken: Collection[str]) -> str:
    longer = f"{name}-{account.provider}"
    wanted = chain((name, longer), (f"{longer}-{number}" for number in count(2)))
    return next(each for each in wanted if each not in taken)


def _ceiling(catalog: Catalog) -> Grade | None:
    """The strongest that an entry may be while the pins of CEILING hold."""
    pinned = [catalog.entries[name].grade for name in catalog.pins.get(Grade.CEILING, ()) if name in catalog.entries]
    return min((grade for grade in pinned if grade is not None), key=lambda grade: grade.value, default=None)


def _as_written(value: Any) -> Any:
    if isinstance(value, Grade):
        return value.name
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, BaseModel):
        return {name: _as_written(getattr(value, name)) for name in sorted(value.model_fields_set, key=_order(value))}
    if isinstance(value, Mapping):
        return {_as_written(key): _as_written(each) for key, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(_as_written(each) for each in value)
    return [_as_written(each) for each in value] if isinstance(value, (list, tuple)) else value


def _order(model: BaseModel) -> Any:
    return list(type(model).model_fields).index


def _plain(text: str) -> str:
    """What somebody else wrote, fit to stand in a comment."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:100]
