"""Keeps secrets out of what is stored, logged and raised.

Every secret is registered as it is read, and replaced wherever it turns up: as it is, percent-encoded, in base64, or
escaped for JSON. What merely looks like a secret (a bearer token, a `?key=` parameter, a provider's key prefix) is
replaced too, so that a key nobody registered does not get through.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

E = TypeVar("E", bound=BaseException)

#: Of a secret at least four times as long, this many characters at its end stay readable.
KEPT = 4
#: Shorter values are not registered: replacing them would eat ordinary words.
SHORTEST = 6
#: The most recent secrets that are remembered; a key that was rotated away may still turn up in a late error.
MOST_SECRETS = 256
_MARK = "[redacted ...]"

_NAMES = (
    r"x-api-key|x-goog-api-key|api[-_]?key|apikey|authorization|access[-_]?token|auth[-_]?token|"
    r"secret[-_]?access[-_]?key|session[-_]?token|client[-_]?secret|password"
)
_QUERY = r"key|sig|signature|token|x-amz-signature|x-amz-security-token"
#: Quotes, plain, escaped for JSON or percent-encoded.
_QUOTE = r"(?:%22|\\?[\"'])?"
_VALUE = r"(?!bearer\b|basic\b)[^\s\"'&,;<>\\\])}]{6,}"

_SHAPES = (
    re.compile(r"(?i)(?P<before>\b(?:bearer|basic)\s+)(?P<secret>[A-Za-z0-9._~+/=-]{8,})"),
    re.compile(rf"(?i)(?P<before>(?<![A-Za-z0-9])(?:{_NAMES}){_QUOTE}\s*(?:%3D|=)\s*{_QUOTE})(?P<secret>{_VALUE})"),
    # After a colon only what has a digit: "credential anthropic-api-key: environment variable ..." is a sentence.
    re.compile(
        rf"(?i)(?P<before>(?<![A-Za-z0-9])(?:{_NAMES}){_QUOTE}\s*:\s*{_QUOTE})(?P<secret>(?=[^\s\"'&,;]*[0-9]){_VALUE})"
    ),
    re.compile(rf"(?i)(?P<before>[?&](?:{_QUERY})=)(?P<secret>[^&\s\"'<>#]+)"),
    re.compile(r"(?P<before>://[^/\s:@]*:)(?P<secret>[^@/\s]+)(?=@)"),
    re.compile(r"(?P<before>\b)(?P<secret>(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|AIza[0-9A-Za-z_-]{30,}|A[KS]IA[0-9A-Z]{16})"),
)


class RedactedCauseError(Exception):
    """Stands in a chain for an error of somebody else's, which may hold a request and its headers."""


class Redactor:
    """Replaces secrets in text, values and errors. Safe to share between threads."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._secrets: dict[str, None] = {}
        self._forms: tuple[str, ...] | None = ()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """Register a secret. Anything shorter than six characters is ignored."""
        if len(secret) < SHORTEST or secret in _MARK or secret in self._secrets:
            return
        with self._lock:
            self._secrets[secret] = None
            while len(self._secrets) > MOST_SECRETS:
                del self._secrets[next(iter(self._secrets))]
            self._forms = None

    def redact(self, text: str) -> str:
        """The text without secrets; of a long one its last four characters stay."""
        for form in self._written_forms():
            if form in text:
                text = text.replace(form, masked(form))
        for shape in _SHAPES:
            text = shape.sub(lambda match: match["before"] + masked(match["secret"]), text)
        return text

    def _written_forms(self) -> tuple[str, ...]:
        """Every way a secret may be written, the longest first, so that no part of one is left over."""
        forms = self._forms
        if forms is None:
            with self._lock:
                every = {form for secret in self._secrets for form in _forms(secret)}
                forms = self._forms = tuple(sorted(every, key=len, reverse=True))
        return forms

    def redact_value(self, value: Any) -> Any:
        """The same for what can stand in JSON: mappings and sequences keep their shape."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            return {self.redact_value(key): self.redact_value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            items = [self.redact_value(each) for each in value]
            return items if isinstance(value, list) else tuple(items)
        return value

    def scrub(self, error: E) -> E:
        """The same error with its arguments, attributes, notes and chain redacted, in place.

        An error in its chain that is not of this house is replaced by its name and redacted text.
        """
        self._scrub(error, set())
        return error

    def _scrub(self, error: BaseException, seen: set[int]) -> None:
        if id(error) in seen:
            return
        seen.add(id(error))
        error.args = tuple(self.redact_value(each) for each in error.args)
        for name, value in list(vars(error).items()):
            if isinstance(value, str | Mapping | list | tuple):
                error.__dict__[name] = self.redact_value(value)
        if error.__cause__ is not None:
            error.__cause__ = self._chained(error.__cause__, seen)
        if error.__context__ is not None:
            suppressed = error.__suppress_context__
            error.__context__ = None if suppressed else self._chained(error.__context__, seen)

    def _chained(self, cause: BaseException, seen: set[int]) -> BaseException | None:
        if type(cause).__module__.startswith("interlock."):
            self._scrub(cause, seen)
            return cause
        if id(cause) in seen:
            return None
        seen.add(id(cause))
        stand_in = RedactedCauseError(self.redact(f"{type(cause).__qualname__}: {cause}"))
        deeper = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
        if deeper is not None:
            stand_in.__cause__ = self._chained(deeper, seen)
        return stand_in


def masked(secret: str) -> str:
    if secret.startswith("[redacted"):
        return secret
    return f"[redacted ...{secret[-KEPT:]}]" if len(secret) >= KEPT * 4 else "[redacted]"


def _forms(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogatepass")
    forms = {secret, quote(secret, safe="", errors="replace"), quote_plus(secret, errors="replace")}
    forms.add(json.dumps(secret)[1:-1])
    forms |= {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
    return {form for form in forms if len(form) >= SHORTEST}
