"""What LiteLLM gives, read: its chunks beyond OpenAI's form, the provider's own words inside its errors, and what it
passes over in a stream. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..answer import Draft
from ..response import Piece
from .sse import EventDecoder

#: Errors are followed this far down.
_DEPTH = 8


def with_cache_writes(event: Any) -> Any:
    """The event with what was written to a cache under the name that the chat wire has for it."""
    usage = event.get("usage")
    if not isinstance(usage, dict):
        return event
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    wrote = _first(details.get("cache_creation_tokens"), usage.get("cache_creation_input_tokens"))
    read = _first(details.get("cached_tokens"), usage.get("cache_read_input_tokens"))
    kept = details.get("cache_creation_token_details")
    long = kept.get("ephemeral_1h_input_tokens") if isinstance(kept, dict) else None
    inner = {**details, "cached_tokens": read, "cache_write_tokens": wrote, "cache_write_1h_tokens": long}
    return {**event, "usage": {**usage, "prompt_tokens_details": inner}}


def _first(*counts: Any) -> Any:
    """The first that says something. Zero does."""
    return next((count for count in counts if count is not None), None)


def read_thinking(event: Any, draft: Draft) -> Sequence[Piece]:
    """Signatures and redacted thinking; the text of it comes as `reasoning_content`."""
    for choice in event.get("choices") or ():
        said = choice.get("delta") or choice.get("message") or {}
        for block in said.get("thinking_blocks") or ():
            if block.get("type") == "redacted_thinking":
                draft.redacted(("redacted", draft.size_bytes), block.get("data"))
            else:
                draft.signature(("thinking", 0), block.get("signature"))
    return ()


def chain_of(error: BaseException) -> list[BaseException]:
    """The error, what it was made from, and so on down."""
    found: list[BaseException] = []
    ahead: list[BaseException | None] = [error]
    while ahead and len(found) < _DEPTH:
        here = ahead.pop(0)
        if here is None or any(here is one for one in found):
            continue
        found.append(here)
        ahead += [getattr(here, "original_exception", None), here.__cause__, here.__context__]
    return found


class Overheard:
    """What a provider's stream says and LiteLLM does not pass on: that Anthropic's has ended, the words of a refusal,
    the kind of an error."""

    def __init__(self) -> None:
        self._events = EventDecoder()
        self._begun = self._ended = False
        self._refusal: list[str] = []
        self.error: dict[str, Any] | None = None

    @property
    def is_cut(self) -> bool:
        """Whether a stream of Anthropic's wire has not come to its end."""
        return self._begun and not self._ended

    def feed(self, chunk: bytes) -> None:
        for data in self._events.feed(chunk):
            if '"message_st' in data or '"refusal"' in data or '"error"' in data:
                self._read(data)

    def end(self) -> None:
        """No more will come. What came was perhaps no stream, but an error as plain JSON."""
        plain = self._events.rest()
        if self.error is None and plain is not None:
            self._read(plain)

    def refusal(self) -> str:
        """Its words that have come since this was last asked."""
        words = "".join(self._refusal)
        self._refusal.clear()
        return words

    def _read(self, data: str) -> None:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return
        if not isinstance(event, dict):
            return
        self._begun = self._begun or event.get("type") == "message_start"
        self._ended = self._ended or event.get("type") == "message_stop"
        if event.get("error"):
            self.error = event
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            delta = choice.get("delta") if isinstance(choice, dict) else None
            words = delta.get("refusal") if isinstance(delta, dict) else None
            if isinstance(words, str):
                self._refusal.append(words)


def answered_status(chain: Sequence[BaseException]) -> int | None:
    """The status of the response that an HTTP library refused. Those that LiteLLM's own errors carry are made up."""
    for one in reversed(chain):
        if "StatusError" in type(one).__name__ or _library(one) == "openai":
            status = getattr(getattr(one, "response", None), "status_code", None)
            if isinstance(status, int):
                return status
    return None


def lost_connection(chain: Sequence[BaseException]) -> BaseException | None:
    """The transport's own error, if it was one."""
    found = (one for one in chain if _library(one) in ("httpx", "httpx2") and "StatusError" not in type(one).__name__)
    return next(found, None)


def is_made_up(chain: Sequence[BaseException]) -> bool:
    """Whether LiteLLM stumbled over the answer rather than being told no."""
    stumbled = (KeyError, TypeError, IndexError, AttributeError, ValueError, RecursionError)
    words = words_of(chain).lower()
    own = any(type(one).__module__ in ("builtins", "json.decoder") and isinstance(one, stumbled) for one in chain)
    return own or "invalid response from llm" in words or "response with no 'choices'" in words


def is_litellm(error: BaseException) -> bool:
    return _library(error) == "litellm"


def words_of(chain: Sequence[BaseException]) -> str:
    """What was said, of the innermost that is LiteLLM's."""
    own = [one for one in chain if is_litellm(one)]
    found = own[-1] if own else chain[0]
    return str(getattr(found, "message", None) or found)


def _library(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def read_body(chain: Sequence[BaseException]) -> Any:
    """The provider's error body, as JSON: from an exception's `body`, or out of the text around it."""
    for one in reversed(chain):
        body = getattr(one, "body", None)
        if isinstance(body, dict) and body:
            return body
    for one in reversed(chain):
        text = getattr(one, "message", None) or str(one)
        found = _json_in(text) if isinstance(text, str) else None
        if found is not None:
            return found
    return None


def _json_in(text: str) -> dict[str, Any] | None:
    at = text.find("{")
    while at >= 0:
        try:
            found, _ = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        if isinstance(found, dict) and ("error" in found or "message" in found or "type" in found):
            return found
        at = text.find("{", at + 1)
    return None


def provider_headers(chain: Sequence[BaseException]) -> dict[str, str]:
    """The response's headers, where an exception kept them."""
    for one in reversed(chain):
        headers = getattr(one, "headers", None) or getattr(getattr(one, "response", None), "headers", None)
        if isinstance(headers, Mapping) and headers:
            return {str(name).lower().removeprefix("llm_provider-"): str(value) for name, value in headers.items()}
    return {}
