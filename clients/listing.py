"""What a provider says it serves: the models of its own list, as far as it tells of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interlock.catalog.words import Input
from interlock.credentials import ApiKey
from interlock.credentials.shapes import Credential
from interlock.errors import ConfigurationError

#: Models asked for at a time where a list comes in pages, and how many pages are read: a list that never ends is none.
PAGE = 1_000
MOST_PAGES = 100
#: Characters of a model's id: an ARN is the longest there is.
MOST_NAME = 2_048

_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
_SNAPSHOT = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


class NoModelListError(ConfigurationError):
    """The provider has no list of its models that could be asked for."""

    code = "no_model_list"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """A model of a provider's list. None: the list does not say.

    `wire_model_id` is what a call names it by, `also` what else it may be named by (an ARN). `context_window` and
    `max_output_tokens` are in tokens. `chat`: whether it converses, by what the list says or by its name.
    """

    wire_model_id: str
    name: str | None = None
    also: frozenset[str] = frozenset()
    context_window: int | None = None
    max_output_tokens: int | None = None
    inputs: frozenset[Input] | None = None
    chat: bool = True

    def __post_init__(self) -> None:
        name: object = self.wire_model_id
        if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME or _UNWRITABLE.search(name):
            raise ValueError(f"lists a model under an id that is no name ({str(name)[:40]!r})")

    @property
    def names(self) -> frozenset[str]:
        """Every id it is called by: its own, and the name of which it is the dated snapshot (`claude-haiku-4-5` for
        `claude-haiku-4-5-20251001`)."""
        own = {self.wire_model_id, *self.also}
        return frozenset(own | {_SNAPSHOT.sub("", name) for name in own})


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededCredential:
    """The credential that a provider needs: its id (None: it needs none), what it is made of, further ids of it."""

    id: str | None
    shape: type[Credential] = ApiKey
    aliases: tuple[str, ...] = ()


def items_of(payload: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    """The models in a page. ValueError where there is no such list, so that another page is no empty list."""
    found = payload.get(key)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ValueError(f"has no list of models under {key!r}")
    return found


def text_of(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def tokens_of(*values: Any) -> int | None:
    """The first that is a count of tokens."""
    return next((value for value in values if type(value) is int and 0 < value < 10**12), None)


def inputs_of(values: Any) -> frozenset[Input] | None:
    """What a model takes, from words such as TEXT, IMAGE, file, pdf."""
    if not isinstance(values, list) or not values:
        return None
    words = {str(value).lower() for value in values}
    known = {Input.TEXT: {"text"}, Input.IMAGES: {"image"}, Input.DOCUMENTS: {"document", "file", "pdf"}}
    return frozenset(each for each, names in known.items() if names & words) or None
