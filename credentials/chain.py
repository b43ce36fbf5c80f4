"""Several stores as one, in order, with what they hold re-read every few minutes and on demand.

A caller names a credential id and a shape, never a variable. A rotated key is taken up within `reread_s`, or at once
after `refresh` (a provider answered 401).
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import SecretStr, ValidationError

from interlock.errors import CredentialError

from .redaction import Redactor
from .shapes import ApiKey, Credential
from .stores import EnvironmentStore, FileStore, Found, Store

C = TypeVar("C", bound=Credential)

log = logging.getLogger("interlock.credentials")

#: Seconds after which a credential is read again.
REREAD_S = 180.0
#: Where the file store looks unless told otherwise.
DEFAULT_FILE = "~/.config/interlock/credentials.toml"

_PLACEHOLDER = re.compile(r"(?:\$\{[^{}]*\})+|\$[A-Za-z_][A-Za-z0-9_]*|%[A-Za-z_][A-Za-z0-9_]*%|<[A-Za-z][^<>]*>")


@dataclass(frozen=True, slots=True)
class _Kept:
    value: Credential
    read_at_s: float
    source: str | None


class Chain:
    """The first store that has a credential gives it. `now` is a monotonic clock in seconds."""

    def __init__(
        self,
        *stores: Store,
        redactor: Redactor | None = None,
        now: Callable[[], float] = time.monotonic,
        reread_s: float = REREAD_S,
    ) -> None:
        self._stores: tuple[Store, ...] = stores or (EnvironmentStore(),)
        self.redactor = redactor or Redactor()
        self._now = now
        self._reread_s = reread_s
        self._kept: dict[tuple[str, type[Credential], tuple[str, ...]], _Kept] = {}
        self._lock = threading.Lock()

    @classmethod
    def default(cls) -> Chain:
        """The environment, then the user's credential file."""
        return cls(EnvironmentStore(), FileStore(DEFAULT_FILE))

    def get(self, credential_id: str, shape: type[C] = ApiKey, *, aliases: Sequence[str] = ()) -> C:  # type: ignore[assignment]
        """The credential. `aliases` are further ids a provider accepts (`google-api-key`), tried after the first.

        Raises `CredentialError` naming the id and where it was looked for, or what is wrong with the value.
        """
        key = (credential_id, shape, tuple(aliases))
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and self._now() - kept.read_at_s < self._reread_s and isinstance(kept.value, shape):
                return kept.value
            value, source = self._read(credential_id, shape, aliases)
            if kept is not None and kept.source != source:
                log.warning("credential %s now comes from %s, before from %s", credential_id, source, kept.source)
            self._kept[key] = _Kept(value, self._now(), source)
            return value

    def refresh(self, credential_id: str) -> None:
        """Forget what was read of an id (or alias), so that the next `get` reads again."""
        with self._lock:
            for key in [key for key in self._kept if credential_id == key[0] or credential_id in key[2]]:
                kept = self._kept[key]
                self._kept[key] = _Kept(kept.value, float("-inf"), kept.source)

    def describe(self, credential_id: str, shape: type[Credential] = ApiKey, *, aliases: Sequence[str] = ()) -> str:
        """Where a credential is looked for, in order, and in which of these places something is. Never a value."""
        places = self.places(credential_id, shape, aliases=aliases)
        return ", ".join(f"{place} ({state})" for place, state in places.items())

    def places(
        self, credential_id: str, shape: type[Credential] = ApiKey, *, aliases: Sequence[str] = ()
    ) -> dict[str, str]:
        """Each place where a credential is looked for, in order, and its state: `set`, `not set`, `cannot be read`."""
        return {
            store.place(name, stored): _state(store, name, stored)
            for name in (credential_id, *aliases)
            for store in self._stores
            for _, stored in _stored_names(shape)
        }

    def _read(self, credential_id: str, shape: type[C], aliases: Sequence[str]) -> tuple[C, str | None]:
        values: dict[str, str] = {}
        source: str | None = None
        for name, store in [(name, store) for name in (credential_id, *aliases) for store in self._stores]:
            if source is not None and values.keys() | shape.identity >= shape.model_fields.keys():
                break  # nothing is left to be found: a store that is slow, or locked, need not be asked
            here = dict(self._fields(store, name, credential_id, shape))
            identity = {field: found for field, found in here.items() if field in shape.identity}
            if identity and source is None:
                # Who is calling comes from one store alone: never a key of one account and a secret of another.
                values.update((field, found.value) for field, found in identity.items())
                source = ", ".join(found.where for found in identity.values())
            for field, found in here.items():
                if field not in shape.identity:
                    values.setdefault(field, found.value)
        if not values and not shape.optional:
            raise self._missing(credential_id, shape, aliases)
        try:
            return shape.model_validate(values), source
        except ValidationError as error:
            why = "; ".join(_complaint(each) for each in error.errors(include_input=False, include_url=False))
            raise CredentialError(
                f"credential {credential_id} {why}: looked at {source or self._places(credential_id, shape, aliases)}",
                credential=credential_id,
                sent=False,
            ) from None

    def _fields(
        self, store: Store, name: str, credential_id: str, shape: type[Credential]
    ) -> Iterator[tuple[str, Found]]:
        done: set[str] = set()
        for field, stored in _stored_names(shape):
            found = None if field in done else store.look(name, stored)
            if found is None:
                continue
            done.add(field)
            value = found.value.strip()
            _check(value, found.where, credential_id)
            if SecretStr in _types(shape.model_fields[field].annotation):
                self.redactor.add(value)
            yield field, Found(value=value, where=found.where)

    def _places(self, credential_id: str, shape: type[Credential], aliases: Sequence[str]) -> str:
        return ", ".join(
            dict.fromkeys(
                store.place(name, stored)
                for name in (credential_id, *aliases)
                for store in self._stores
                for _, stored in _stored_names(shape)
            )
        )

    def _missing(self, credential_id: str, shape: type[Credential], aliases: Sequence[str]) -> CredentialError:
        places = self._places(credential_id, shape, aliases)
        return CredentialError(
            f"credential {credential_id} is not set: looked at {places}", credential=credential_id, sent=False
        )

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self._stores))})"


def _state(store: Store, name: str, field: str | None) -> str:
    try:
        return "set" if store.look(name, field) else "not set"
    except CredentialError:
        return "cannot be read"


def _stored_names(shape: type[Credential]) -> Iterator[tuple[str, str | None]]:
    """(field, its name in a store), a field's own name before its further ones."""
    for field in shape.model_fields:
        yield field, None if field == shape.bare else field
        for other in shape.names.get(field, ()):
            yield field, other


def _types(annotation: Any) -> tuple[Any, ...]:
    return (annotation, *getattr(annotation, "__args__", ()))


def _check(value: str, where: str, credential_id: str) -> None:
    """Refuse what an HTTP library would quote in its own error, and what nobody ever means as a secret."""
    why = None
    if _PLACEHOLDER.fullmatch(value):
        why = "holds an unexpanded placeholder, not a value"
    elif any(ord(char) < 32 or ord(char) == 127 for char in value):
        why = "holds a line break or another control character inside the value"
    elif not value.isascii():
        why = "holds a character outside ASCII, which no HTTP header can carry"
    if why:
        raise CredentialError(f"credential {credential_id}: {where} {why}", credential=credential_id, sent=False)


def _complaint(error: Any) -> str:
    field = ".".join(str(part) for part in error["loc"])
    said = "is missing" if error["type"] == "missing" else str(error["msg"]).removeprefix("Value error, ")
    return f"{field} {said}".strip()
