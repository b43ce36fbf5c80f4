"""Where secrets are kept: the environment, and a file that only its owner can read.

A store answers one question: what it holds for a field of a credential. It reads afresh each time; the chain caches.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from interlock.errors import CredentialError


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A value in a store, and the place to name in an error about it."""

    value: str
    where: str

    def __repr__(self) -> str:
        return f"Found(where={self.where!r})"


class Store(Protocol):
    """A place that holds secrets by credential id. `field` is None for the id's own bare value."""

    def look(self, credential_id: str, field: str | None) -> Found | None:
        """What is held, or None. An empty value is none. Raises `CredentialError` when the store cannot be read."""
        ...

    def place(self, credential_id: str, field: str | None) -> str:
        """Where it looks, in words for an error. Never a value."""
        ...


class EnvironmentStore:
    """`anthropic-api-key` is `ANTHROPIC_API_KEY`; the field `region` of `aws` is `AWS_REGION`."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ

    def look(self, credential_id: str, field: str | None) -> Found | None:
        name = variable(credential_id, field)
        value = self._environ.get(name, "")
        return Found(value=value, where=f"environment variable {name}") if value.strip() else None

    def place(self, credential_id: str, field: str | None) -> str:
        return f"environment variable {variable(credential_id, field)}"

    def __repr__(self) -> str:
        return "EnvironmentStore()"


def variable(credential_id: str, field: str | None) -> str:
    """The environment variable of a credential id, or of one of its fields."""
    name = credential_id if field is None else f"{credential_id}_{field}"
    return "".join(char if char.isalnum() else "_" for char in name).upper()


class FileStore:
    """A TOML file, mode 0600 and owned by the user who runs: `anthropic-api-key = "..."`, or a table `[aws]`.

    A file that is not there holds nothing. One that others can read is refused.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).expanduser()
        self._read: tuple[tuple[int, int, int, int], Mapping[str, object]] | None = None

    def look(self, credential_id: str, field: str | None) -> Found | None:
        record = self._records(credential_id).get(credential_id)
        where = self.place(credential_id, field)
        if isinstance(record, dict):
            record = record.get(field or "key")
        elif field is not None:
            record = None
        if record is None:
            return None
        if not isinstance(record, str):
            raise CredentialError(f"{where} must be a text in quotes", credential=credential_id, sent=False)
        return Found(value=record, where=where) if record.strip() else None

    def place(self, credential_id: str, field: str | None) -> str:
        return f"{credential_id}{f'.{field}' if field else ''} in file {self._path}"

    def _records(self, credential_id: str) -> Mapping[str, object]:
        def refused(why: str) -> CredentialError:
            return CredentialError(f"credential file {self._path} {why}", credential=credential_id, sent=False)

        try:
            with open(self._path, "rb", opener=_without_waiting) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise refused("is not a regular file")
                if os.name == "posix" and status.st_mode & 0o077:
                    mode = stat.S_IMODE(status.st_mode)
                    raise refused(f"can be read by others (mode {mode:04o}): run chmod 600 on it")
                if os.name == "posix" and status.st_uid not in (os.geteuid(), 0):
                    raise refused("belongs to another user")
                stamp = (status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode)
                if self._read is None or self._read[0] != stamp:
                    self._read = stamp, tomllib.loads(file.read().decode("utf-8-sig"))
                return self._read[1]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise refused(f"cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            # The parser's own words may quote the text around the mistake, so only its position is told.
            raise refused(f"is not TOML{_position(error)}") from None

    def __repr__(self) -> str:
        return f"FileStore({str(self._path)!r})"


def _without_waiting(path: str, flags: int) -> int:
    """A pipe in the file's place must not stop the program until somebody writes to it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _position(error: BaseException) -> str:
    place = str(error).rpartition("(at ")[2]
    return f" (at {place}" if place.startswith(("line ", "end ")) else ""
