"""The operating system's own keyring: macOS Keychain, Windows Credential Locker, Secret Service, KWallet.

`keyring set interlock anthropic-api-key` puts a key there; a field of a credential is `<id>.<field>`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from interlock.errors import ConfigurationError, CredentialError

from .stores import Found


class KeyringStore:
    """Reads through the `keyring` package (extra `keyring`), under one service name."""

    def __init__(self, service: str = "interlock") -> None:
        self._service = service

    def look(self, credential_id: str, field: str | None) -> Found | None:
        library = _library()
        name = _name(credential_id, field)
        try:
            value = library.get_password(self._service, name)
        except library.errors.KeyringError as error:
            raise CredentialError(
                f"{self.place(credential_id, field)} cannot be read ({type(error).__name__}): unlock the keyring, or "
                "install a backend for it",
                credential=credential_id,
                sent=False,
            ) from None
        return Found(value=value, where=self.place(credential_id, field)) if value and value.strip() else None

    def place(self, credential_id: str, field: str | None) -> str:
        return f"{_name(credential_id, field)} in the keyring's service {self._service}"

    def __repr__(self) -> str:
        return f"KeyringStore({self._service!r})"


def _name(credential_id: str, field: str | None) -> str:
    return credential_id if field is None else f"{credential_id}.{field}"


def _library() -> Any:
    try:
        library: Any = import_module("keyring")
        import_module("keyring.errors")
    except ImportError:
        raise ConfigurationError("KeyringStore needs the package keyring: pip install 'interlock[keyring]'") from None
    return library
