"""AWS Secrets Manager: one secret for each credential id.

`interlock/anthropic-api-key` holds the key as plain text, or a JSON object with one text for each field
(`{"key": "..."}`, `{"access_key_id": "...", "secret_access_key": "..."}`). Who reads it is AWS's own chain: a role, a
profile, the usual variables.

A look is a request to AWS, on the thread that asks: put the store last in the chain, so that it is asked only for what
the others do not have. The chain keeps what was read for minutes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from interlock.errors import ConfigurationError, CredentialError

from .stores import Found

#: Seconds in which the fields of one credential are read of one answer.
ONE_LOOK_S = 1.0
#: AWS's words for a secret that is not there.
_ABSENT = ("ResourceNotFoundException",)


class AwsSecretsManagerStore:
    """Reads through boto3 (extra `aws`). `timeout_s` bounds a look, for the event loop waits for it."""

    def __init__(
        self,
        *,
        prefix: str = "interlock/",
        region: str | None = None,
        profile: str | None = None,
        endpoint_url: str | None = None,
        timeout_s: float = 3.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prefix, self._region, self._profile, self._url = prefix, region, profile, endpoint_url
        self._timeout_s, self._now = timeout_s, now
        self._client: Any = None
        self._read: dict[str, tuple[float, Mapping[str, Any]]] = {}

    def look(self, credential_id: str, field: str | None) -> Found | None:
        value = self._fields(credential_id).get(field or "key")
        if value is None:
            return None
        where = self.place(credential_id, field)
        if not isinstance(value, str):
            raise CredentialError(f"{where} must be a text", credential=credential_id, sent=False)
        return Found(value=value, where=where) if value.strip() else None

    def place(self, credential_id: str, field: str | None) -> str:
        return f"{f'field {field} of ' if field else ''}secret {self._prefix}{credential_id} in AWS Secrets Manager"

    def _fields(self, credential_id: str) -> Mapping[str, Any]:
        now = self._now()
        read_at_s, fields = self._read.get(credential_id, (float("-inf"), {}))
        if now - read_at_s >= ONE_LOOK_S:
            fields = self._ask(credential_id)
            self._read[credential_id] = now, fields
        return fields

    def _ask(self, credential_id: str) -> Mapping[str, Any]:
        core = _botocore()
        try:
            answer = self._secrets().get_secret_value(SecretId=f"{self._prefix}{credential_id}")
        except core.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in _ABSENT:
                return {}
            raise self._unreadable(credential_id, code) from None
        except core.BotoCoreError as error:
            raise self._unreadable(credential_id, type(error).__name__) from None
        text = answer.get("SecretString")
        if text is None:
            raise self._unreadable(credential_id, "it holds bytes, not text")
        return _parsed(text)

    def _unreadable(self, credential_id: str, why: str) -> CredentialError:
        helps = {
            "AccessDeniedException": "allow secretsmanager:GetSecretValue on it",
            "NoCredentialsError": "AWS finds no credentials of its own here",
            "NoRegionError": "name the region: AwsSecretsManagerStore(region=...)",
        }.get(why)
        return CredentialError(
            f"{self.place(credential_id, None)} cannot be read ({why}){f': {helps}' if helps else ''}",
            credential=credential_id,
            sent=False,
        )

    def _secrets(self) -> Any:
        if self._client is None:
            boto3, config = _boto3()
            session = boto3.Session(profile_name=self._profile, region_name=self._region)
            self._client = session.client(
                "secretsmanager",
                endpoint_url=self._url,
                config=config(
                    connect_timeout=self._timeout_s,
                    read_timeout=self._timeout_s,
                    retries={"total_max_attempts": 1, "mode": "standard"},
                ),
            )
        return self._client

    def __repr__(self) -> str:
        return f"AwsSecretsManagerStore(prefix={self._prefix!r})"


def _parsed(text: str) -> Mapping[str, Any]:
    """The fields of a secret: those of its JSON object, or its whole text as the key."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"key": text}


def _boto3() -> tuple[Any, Any]:
    try:
        return import_module("boto3"), import_module("botocore.config").Config
    except ImportError:
        raise ConfigurationError("AwsSecretsManagerStore needs boto3: pip install 'interlock[aws]'") from None


def _botocore() -> Any:
    try:
        return import_module("botocore.exceptions")
    except ImportError:
        raise ConfigurationError("AwsSecretsManagerStore needs boto3: pip install 'interlock[aws]'") from None
