"""What is written into a request: values as JSON, and the address that it goes to. What cannot be written is refused by
name, before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from interlock.catalog.addresses import FORM, wrong_with
from interlock.errors import InvalidRequestError

from .turns import refused


def plain(value: Any) -> Any:
    """For `json.dumps(default=...)`: mappings and collections of any kind. Raises TypeError for anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def json_text(value: Mapping[str, Any], what: str) -> str:
    """A value that its wire takes as JSON inside a text. Raises `InvalidRequestError` (nothing sent)."""
    try:
        return json.dumps(dict(value), ensure_ascii=False, allow_nan=False, default=plain)
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"{what} cannot be written as JSON: {str(error)[:200]}"
    raise refused(problem)


def checked_url(url: str, *, provider: str, model: str) -> str:
    """The address, if a request can be sent to it. Raises `InvalidRequestError` (nothing sent); what it says holds no
    user name and no password."""
    problem = wrong_with(url)
    if problem is None:
        return url
    shown = "" if "@" in url or "?" in url else f" {url[:100]!r}"
    raise InvalidRequestError(
        f"the base_url{shown} of {provider} {problem}: {FORM}", model=model, provider=provider, sent=False
    )
