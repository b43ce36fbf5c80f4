"""From an answer to a reply: the limits of the request applied, everything counted."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from .caching import CacheUse
from .counting import cut_to
from .exchange import UNSET, Answer, Ask, Reply, ReplyCall, Stop, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """Ids that are the same for the same seed and order of requests."""

    seed: int
    number: int
    created_s: int

    def id(self, prefix: str, index: int = 0) -> str:
        return f"{prefix}sim{self.seed:04x}{self.number:012x}{index:02x}"


def sign(thinking: str, seed: int) -> str:
    """The signature of a thinking block: whoever sends one back changed is found out. It is opaque, so it holds what a
    client might be tempted to tidy."""
    digest = blake2b(thinking.encode("utf-8", "surrogatepass"), key=str(seed).encode(), digest_size=32).digest()
    return f" {base64.b64encode(digest).decode()}\u2028\u00e9e\u0301\\/\n"


def make_reply(
    ask: Ask,
    answer: Answer,
    *,
    truncated: bool,
    halved: bool,
    cache: CacheUse,
    input_tokens: int,
    count: Callable[[str], int],
    numbering: Numbering,
    prefixes: tuple[str, str],
) -> Reply:
    """The reply to `ask`. `halved` leaves half of an answer that is `truncated`. `prefixes` are those of the ids of
    messages and of tool calls."""
    text, calls = _body(ask, answer, numbering, prefixes[1])
    stop: Stop = "refusal" if answer.refusal is not None else "tool" if calls else "end"
    text, stop_sequence = _stopped(text, ask.stop_sequences)
    if stop_sequence is not None and not calls:
        stop = "stop_sequence"
    parts = _Parts(answer.thinking, text, calls)
    if truncated:
        parts = parts.halved() if halved else parts
        stop = "length"
    elif ask.max_output_tokens is not None and answer.output_tokens is None:
        limited = parts.limited(ask.max_output_tokens, count)
        if limited is not parts:
            parts, stop, stop_sequence = limited, "length", None
    output_tokens = answer.output_tokens
    if output_tokens is None:
        whole = truncated and ask.max_output_tokens is not None
        output_tokens = ask.max_output_tokens if whole and ask.max_output_tokens else parts.tokens(count)
        if ask.embeddings is not None:
            output_tokens = 0
        elif ask.max_output_tokens != 0:  # which only fills the cache
            output_tokens = max(1, output_tokens)
    reasoning = count(parts.thinking) if parts.thinking else 0
    pieces = answer.pieces if answer.pieces is not None and "".join(answer.pieces) == (parts.text or "") else None
    read = cache.read_tokens if answer.cache_read_tokens is None else answer.cache_read_tokens
    written = cache.write_tokens if answer.cache_write_tokens is None else answer.cache_write_tokens
    fresh = max(0, input_tokens - cache.read_tokens - cache.write_tokens)
    return Reply(
        id=numbering.id(prefixes[0]),
        model=ask.model,
        created_s=numbering.created_s,
        text=parts.text,
        pieces=pieces or (),
        thinking=parts.thinking,
        signature=sign(parts.thinking, numbering.seed) if parts.thinking is not None else "",
        redacted_thinking=answer.redacted_thinking,
        tool_calls=parts.calls,
        server_tools=tuple(answer.server_tools),
        refusal=answer.refusal,
        stop=stop,
        stop_sequence=stop_sequence,
        stop_reason=answer.stop_reason,
        input_tokens=fresh if answer.input_tokens is None else answer.input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=min(written, cache.write_1h_tokens),
        reasoning_tokens=reasoning if answer.reasoning_tokens is None else answer.reasoning_tokens,
    )


def _body(ask: Ask, answer: Answer, numbering: Numbering, prefix: str) -> tuple[str | None, tuple[ReplyCall, ...]]:
    """The text and the tool calls, a structured answer put where the request wants it."""
    text = answer.text if answer.pieces is None else "".join(answer.pieces)
    calls = answer.tool_calls
    if answer.json is not UNSET:
        if ask.forced_tool is not None:
            calls = (ToolCall(name=ask.forced_tool.name, input=answer.json), *calls)
        else:
            text = (text or "") + json.dumps(answer.json, ensure_ascii=False)
    return text, tuple(_call(call, numbering.id(prefix, index)) for index, call in enumerate(calls))


def _call(call: ToolCall, default_id: str) -> ReplyCall:
    if isinstance(call.input, str):
        arguments, value = call.input, _parsed(call.input)
    else:
        arguments, value = json.dumps(call.input, ensure_ascii=False), call.input
    return ReplyCall(id=call.id or default_id, name=call.name, arguments=arguments, value=value)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {}


def _stopped(text: str | None, sequences: tuple[str, ...]) -> tuple[str | None, str | None]:
    if not text or not sequences:
        return text, None
    found = [(text.find(sequence), sequence) for sequence in sequences if sequence and sequence in text]
    if not found:
        return text, None
    at, sequence = min(found)
    return text[:at], sequence


@dataclass(frozen=True, slots=True)
class _Parts:
    """What of an answer costs output tokens, in the order it is produced."""

    thinking: str | None
    text: str | None
    calls: tuple[ReplyCall, ...]

    def tokens(self, count: Callable[[str], int]) -> int:
        spoken = sum(count(part) for part in (self.thinking, self.text) if part)
        return spoken + sum(count(call.name) + count(call.arguments) for call in self.calls)

    def halved(self) -> _Parts:
        text = self.text[: len(self.text) // 2] if self.text else self.text
        return _Parts(self.thinking, text, tuple(_cut_call(call, len(call.arguments) // 2) for call in self.calls))

    def limited(self, tokens: int, count: Callable[[str], int]) -> _Parts:
        """Itself, if it is within the limit; else what had been said when the limit was reached."""
        if self.tokens(count) <= tokens:
            return self
        thinking = cut_to(self.thinking, tokens, count) if self.thinking else self.thinking
        left = tokens - (count(thinking) if thinking else 0)
        text = cut_to(self.text, left, count) if self.text else self.text
        left -= count(text) if text else 0
        calls = []
        for call in self.calls:
            room = left - count(call.name)
            if room <= 0:
                break
            calls.append(
                call if count(call.arguments) <= room else _cut_call(call, len(cut_to(call.arguments, room, count)))
            )
            left = room - count(call.arguments)
        return _Parts(thinking, text or None, tuple(calls))


def _cut_call(call: ReplyCall, size: int) -> ReplyCall:
    return replace(call, arguments=call.arguments[:size], value={})


def seal(hidden: str, seed: int) -> str:
    """An opaque token for what is hidden; unlike a signature it can be checked by itself."""
    body = blake2b(hidden.encode("utf-8", "surrogatepass"), digest_size=24).digest()
    return base64.b64encode(body + _mac(body, seed)).decode()


def is_sealed(token: Any, seed: int) -> bool:
    """Whether a token came from `seal`, unchanged; both alphabets of base64 are read."""
    try:
        data = base64.b64decode(token.replace("-", "+").replace("_", "/"), validate=True)
    except (AttributeError, ValueError):
        return False
    return len(data) == 48 and data[24:] == _mac(data[:24], seed)


def _mac(body: bytes, seed: int) -> bytes:
    return blake2b(body, key=f"seal {seed}".encode(), digest_size=24).digest()
