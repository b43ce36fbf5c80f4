"""The accounts that a catalog names, and one question to each: which models do you list? One request, or one a page.

An account is a provider with one credential at one address: entries may have their own of either.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from interlock.catalog import Catalog, ModelEntry
from interlock.catalog.words import Grade
from interlock.clients.environment import ClientEnvironment
from interlock.clients.listing import ListedModel, NeededCredential, NoModelListError
from interlock.clients.registry import provider_class
from interlock.credentials import Chain
from interlock.credentials.shapes import Credential
from interlock.errors import ConfigurationError, CredentialError, InterlockError

from ..desk import why_not

#: Seconds that a provider has for its whole list.
PATIENCE_S = 15.0
#: Stands in an error where otherwise the model stands that was called.
_STAND_IN = "its list of models"


class Said(StrEnum):
    """What became of the question."""

    LISTED = "listed"
    REFUSED = "refused"  # the credential was
    FAILED = "failed"  # no answer, or one that is no list
    NO_LIST = "no list"  # there is none to ask for
    NOT_ASKED = "not asked"  # something is missing here


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """`credential` and `base_url` are those of the entries where they have their own; None: the provider's."""

    provider: str
    credential: str | None
    base_url: str | None
    entries: tuple[ModelEntry, ...]

    def stand_in(self) -> ModelEntry:
        """An entry for what is asked of the provider, and of no model."""
        return ModelEntry(
            id=_STAND_IN, grade=Grade.MICRO, provider=self.provider, wire_model_id="none",
            credential=self.credential, base_url=self.base_url, timeout_s=PATIENCE_S,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`why` says in a sentence what else it was than a list; `host` and `credential` say whose list
    it is."""

    account: Account
    said: Said
    models: tuple[ListedModel, ...] = ()
    why: str = ""
    remedy: str = ""
    host: str = ""
    credential: str | None = None
    took_s: float = 0.0


def accounts_of(catalog: Catalog, providers: Collection[str] = ()) -> list[Account]:
    """Every account of the entries, then the providers that the file sets up without an entry; of `providers` only,
    where some are named. ConfigurationError for one that the catalog has not."""
    entries: dict[tuple[str, str | None, str | None], list[ModelEntry]] = {}
    for entry in catalog.entries.values():
        entries.setdefault((entry.provider, entry.credential, entry.base_url), []).append(entry)
    used = {known[0] for known in entries}
    entries |= {(key, None, None): [] for key in catalog.providers if key not in used}
    there = {key for key, _, _ in entries}
    if unknown := sorted(set(providers) - there):
        raise ConfigurationError(f"{catalog.file} has no provider {unknown[0]}: it has {', '.join(sorted(there))}")
    return [
        Account(provider=key, credential=credential, base_url=base_url, entries=tuple(found))
        for (key, credential, base_url), found in entries.items()
        if not providers or key in providers
    ]


def needed_credential(account: Account, catalog: Catalog) -> NeededCredential:
    """What the account is signed in with. ConfigurationError where its provider is not installed."""
    class_, settings = provider_class(account.provider), catalog.provider(account.provider)
    named = account.credential or settings.credential
    needed = getattr(class_, "needed_credential", None)
    if needed is not None:
        found: NeededCredential = needed(named, settings)
        return found
    shape: type[Credential] | None = getattr(class_, "CREDENTIAL", None)
    name = named or getattr(class_, "default_credential", None)
    return NeededCredential(id=name) if shape is None else NeededCredential(id=name, shape=shape)


async def ask_all(
    accounts: Sequence[Account],
    catalog: Catalog,
    credentials: Chain,
    heard: Callable[[Answer], None],
    *,
    patience_s: float = PATIENCE_S,
) -> list[Answer]:
    """Every account at the same time. `heard` is called as each has answered; the answers come in the given order."""

    for account in accounts:
        why_not(account.stand_in(), catalog, credentials)  # imports its SDK, which would hold up those who are asked

    async def one(account: Account) -> Answer:
        answer = await ask(account, catalog, credentials, patience_s=patience_s)
        heard(answer)
        return answer

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(account)) for account in accounts]
    return [task.result() for task in tasks]


async def ask(account: Account, catalog: Catalog, credentials: Chain, *, patience_s: float = PATIENCE_S) -> Answer:
    """What an account lists, or why it does not. Raises nothing that a provider could be the cause of."""
    reason = why_not(account.stand_in(), catalog, credentials)
    if reason is not None:
        return Answer(account=account, said=Said.NOT_ASKED, why=str(reason), remedy=reason.remedy)
    class_ = provider_class(account.provider)
    if not hasattr(class_, "list_models"):
        return Answer(account=account, said=Said.NO_LIST, why="it has no list of models to ask for")
    environment = ClientEnvironment(
        settings=catalog.provider(account.provider), credentials=credentials, redactor=credentials.redactor
    )
    client = class_(account.stand_in(), environment)
    began_s = time.monotonic()
    try:
        said, models, why = await _listed(client, patience_s)
        host = str(getattr(client, "host", "")) if said is Said.LISTED else ""
    finally:
        await client.aclose()
    return Answer(
        account=account, said=said, models=models, why=credentials.redactor.redact(why), host=host,
        credential=needed_credential(account, catalog).id, took_s=time.monotonic() - began_s,
    )  # fmt: skip


async def _listed(client: Any, patience_s: float) -> tuple[Said, tuple[ListedModel, ...], str]:
    try:
        async with asyncio.timeout(patience_s):
            return Said.LISTED, tuple(await client.list_models()), ""
    except NoModelListError as error:
        return Said.NO_LIST, (), str(error)
    except TimeoutError:
        return Said.FAILED, (), f"{client.where} did not answer within {patience_s:g} s"
    except Exception as error:
        found = client.failure(error)
        said = Said.REFUSED if isinstance(found, CredentialError) else Said.FAILED
        if isinstance(found, InterlockError):
            return said, (), str(found)
        return said, (), f"{client.where} answered what is not its list of models ({type(found).__name__})"
