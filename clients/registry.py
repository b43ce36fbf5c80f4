"""A provider's class by its key, found through entry points and imported at the first use.

A third party's provider is a package with one class and one line of packaging:

    [project.entry-points."interlock.providers"]
    my-provider = "my_package:MyClient"
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from interlock.errors import ConfigurationError

GROUP = "interlock.providers"

#: Which extra installs what a key's module needs.
EXTRAS = {
    "anthropic": "anthropic",
    "openai": "openai",
    "google": "gemini",
    "boto3": "bedrock",
    "botocore": "bedrock",
    "litellm": "litellm",
    "httpx2": "anthropic",
    "uvicorn": "simulator",
    "wordllama": "local",
    "sparrow_decider": "local",
}


@cache
def _known() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def provider_keys() -> tuple[str, ...]:
    """Every key that is installed, sorted."""
    return tuple(sorted(_known()))


@cache
def provider_class(key: str) -> type[Any]:
    """The class that speaks to provider `key`. ConfigurationError: no such key, or an extra that is not installed."""
    point = _known().get(key)
    if point is None:
        near = get_close_matches(key, provider_keys(), n=1, cutoff=0.8)
        instead = f": did you mean {near[0]}?" if near else ", neither with this version nor by another package"
        raise ConfigurationError(f"no provider {key!r} is installed{instead}")
    try:
        loaded: type[Any] = point.load()
    except ModuleNotFoundError as error:
        raise missing_extra(key, error) from None
    return loaded


def missing_extra(key: str, error: ModuleNotFoundError) -> ConfigurationError:
    """One sentence that names what to install."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(module)
    if extra is None:
        return ConfigurationError(f"provider {key!r} needs the module {error.name!r}, which is not installed")
    return ConfigurationError(f"provider {key!r} needs {module!r}: pip install 'interlock[{extra}]'")
