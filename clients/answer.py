"""One answer as it is read off a wire, whole or piece by piece: the same Draft for every provider, so a streamed answer
equals the unstreamed one.

Blocks are keyed by the wire's own index and stay in the order in which they began; those that are the wire's own
business (a search that the provider ran) are kept whole among them. Usage is a last-value-per-field merge: providers
report it twice, or on every chunk, and never mean a sum.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.usage import Usage

from .conversation import Block, Conversation, Message, ServerToolBlock, TextBlock, ThinkingBlock, ToolUseBlock
from .extract import strict_value
from .response import Piece, PieceKind, StopReason

#: More than one request can use. A larger count is a mistake, and as a debt it would close the pool for ever.
MOST_TOKENS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class BadToolCall:
    """A tool call whose arguments are no JSON object: told to the model, not to the caller."""

    id: str
    name: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, before any gate. `stop_reason` None: the wire never said that it was complete."""

    blocks: tuple[Block, ...]
    stop_reason: StopReason | None
    usage: Usage | None = None
    served_model: str | None = None
    request_id: str | None = None
    reported: Mapping[Dimension, ReportedLimit] = field(default_factory=dict)
    refusal_category: str | None = None
    refusal_explanation: str | None = None
    bad_tool_calls: tuple[BadToolCall, ...] = ()
    malformed: str = ""  # what of it cannot be used, where that is nothing that the model could be told

    @property
    def message(self) -> Message:
        return Message("assistant", self.blocks)

    @property
    def text(self) -> str:
        return self.message.text


class _Part:
    __slots__ = ("arguments", "half", "id", "index", "kind", "name", "payload", "redacted", "signature", "texts")

    def __init__(self, kind: str, index: int) -> None:
        self.kind, self.index, self.texts = kind, index, list[str]()
        self.half = ""  # of a character, whose other half may be in the next piece
        self.id = self.name = ""
        self.arguments: Any = None
        self.payload: Mapping[str, Any] = {}
        self.signature: str | None = None
        self.redacted: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts) + ("\ufffd" if self.half else "")

    def whole_characters(self, delta: str) -> str:
        """What can be given out: JSON escapes can cut a character in two, and no half of one can be encoded."""
        text = self.half + delta
        self.half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        return _sound(text.removesuffix(self.half))


class Draft:
    """An answer being read. Every method takes one fact of the wire; `answer()` is what has come so far."""

    def __init__(self, signed_by: str | None = None) -> None:
        self._parts: dict[Hashable, _Part] = {}
        self.signed_by = signed_by  # the wire whose signatures come with it
        self._usage: dict[str, int] = {}
        self.stop_reason: StopReason | None = None
        self.complete = False  # the wire's own end has been seen
        self.served_model: str | None = None
        self.request_id: str | None = None
        self.reported: Mapping[Dimension, ReportedLimit] = {}
        self.refusal_category: str | None = None
        self.refusal_explanation: str | None = None
        self.size_bytes = 0
        self.notes: dict[str, Any] = {}  # what one provider must remember from event to event

    def text(self, key: Hashable, delta: Any) -> Piece | None:
        return self._piece("text", PieceKind.TEXT, key, delta)

    def thinking(self, key: Hashable, delta: Any) -> Piece | None:
        return self._piece("thinking", PieceKind.THINKING, key, delta)

    def signature(self, key: Hashable, signature: Any) -> None:
        """Comes once, or in fragments."""
        if isinstance(signature, str) and signature:
            part = self._part("thinking", key)
            part.signature = (part.signature or "") + signature

    def sign(self, key: Hashable, signature: Any) -> None:
        """The signature of a block that has begun, whatever its kind. It comes whole."""
        part = self._parts.get(key)
        if part is not None and isinstance(signature, str) and signature:
            part.signature = signature

    def redacted(self, key: Hashable, data: Any) -> None:
        if isinstance(data, str):
            self._part("thinking", key).redacted = data

    def tool(self, key: Hashable, *, id: Any = None, name: Any = None, arguments: Any = None) -> None:
        """A tool call begins, or is named again. `arguments` is its input where the wire gives it parsed."""
        part = self._part("tool", key)
        part.id = part.id or (_sound(id) if isinstance(id, str) else "")
        part.name = part.name or (_sound(name) if isinstance(name, str) else "")
        part.arguments = arguments if arguments is not None else part.arguments

    def tool_json(self, key: Hashable, fragment: Any) -> Piece | None:
        return self._piece("tool", PieceKind.TOOL_JSON, key, fragment)

    def server_tool(self, key: Hashable, kind: Any, payload: Any) -> None:
        """A block of the wire's own, as it begins or whole. Told again, the later one stands. Raises ValueError,
        TypeError or RecursionError for one that could not be sent back."""
        if not isinstance(kind, str) or not kind:
            raise TypeError("a block without a kind")
        kept, text = as_kept(payload)
        part = self._part("server", key)
        part.name, part.payload = kind, kept
        self.size_bytes += len(text)

    def server_tool_json(self, key: Hashable, fragment: Any) -> None:
        """A fragment of such a block's `input`, which is instead of the one that it began with. No piece: what the
        provider does by itself is nothing to show as the answer."""
        self._piece("server", PieceKind.TOOL_JSON, key, fragment)

    def server_tool_fields(self, key: Hashable, fields: Mapping[str, Any]) -> None:
        """Further members of such a block, or what stands instead of those that it began with."""
        kept, text = as_kept(fields)
        part = self._part("server", key)
        part.payload = {**part.payload, **kept}
        self.size_bytes += len(text)

    def has(self, key: Hashable) -> bool:
        return key in self._parts

    def wrote(self, key: Hashable) -> bool:
        """Whether any text of that block has come."""
        part = self._parts.get(key)
        return part is not None and bool(part.texts)

    @property
    def says_something(self) -> bool:
        """Whether there is any block beside thinking."""
        return any(part.kind != "thinking" for part in self._parts.values())

    @property
    def calls_tools(self) -> bool:
        return any(part.kind == "tool" for part in self._parts.values())

    def count(self, **fields: Any) -> None:
        """Token counts by the names of `Usage`. The last value of each wins; None says nothing; zero is zero."""
        self._usage.update({name: int(value) for name, value in fields.items() if _is_count(value)})

    def stop(self, reason: StopReason | None) -> None:
        """A reason given keeps over a later empty one."""
        self.stop_reason = reason or self.stop_reason

    def refuse(self, category: Any = None, explanation: Any = None) -> None:
        self.stop_reason = StopReason.REFUSAL
        self.refusal_category = category if isinstance(category, str) and category else self.refusal_category
        if isinstance(explanation, str) and explanation:
            self.refusal_explanation = (self.refusal_explanation or "") + explanation

    @property
    def usage(self) -> Usage | None:
        counts = self._usage
        if not counts:
            return None
        return Usage(
            input_tokens=counts.get("input_tokens"),
            output_tokens=counts.get("output_tokens"),
            cache_read_tokens=counts.get("cache_read_tokens"),
            cache_write_tokens=counts.get("cache_write_tokens"),
            reasoning_tokens=counts.get("reasoning_tokens"),
            cache_write_1h_tokens=counts.get("cache_write_1h_tokens"),
        )

    @property
    def partial(self) -> str:
        """The text that has come."""
        return "".join("".join(part.texts) for part in self._parts.values() if part.kind == "text")

    @property
    def produced(self) -> str:
        """Everything the model has written so far, for an estimate of its tokens."""
        return "".join("".join(part.texts) for part in self._parts.values())

    def answer(self) -> Answer:
        blocks: list[Block] = []
        bad: list[BadToolCall] = []
        taken: set[str] = set()
        malformed: list[str] = []
        for part in self._parts.values():
            if part.kind == "text":
                blocks.append(TextBlock(part.text, signature=part.signature, signed_by=self._signer(part)))
            elif part.kind == "thinking":
                blocks.append(
                    ThinkingBlock(
                        text=part.text, signature=part.signature, redacted=part.redacted, signed_by=self._signer(part)
                    )
                )
            elif part.kind == "server":
                blocks.append(self._server_block(part, malformed))
            else:
                blocks.append(self._tool_block(part, taken, bad))
        return Answer(
            blocks=tuple(blocks),
            stop_reason=(self.stop_reason or StopReason.END_TURN) if self.complete else None,
            usage=self.usage,
            served_model=self.served_model,
            request_id=self.request_id,
            reported=self.reported,
            refusal_category=self.refusal_category,
            refusal_explanation=self.refusal_explanation,
            bad_tool_calls=tuple(bad),
            malformed=malformed[0] if malformed else "",
        )

    def _server_block(self, part: _Part, malformed: list[str]) -> ServerToolBlock:
        payload = part.payload
        if part.texts:
            given, problem = parse_arguments(part.text)
            payload = {**payload, "input": given}
            malformed += [f"the input of its {part.name} cannot be used: {problem}"] if problem else []
        return ServerToolBlock(kind=part.name, payload=payload, signed_by=self.signed_by)

    def _tool_block(self, part: _Part, taken: set[str], bad: list[BadToolCall]) -> ToolUseBlock:
        tool_id = free_id(part.id or f"call_{part.index}", taken)
        taken.add(tool_id)
        arguments, problem = parse_arguments(part.text if part.texts else part.arguments)
        if not part.name:
            problem = "the call has no name"
        if problem:
            bad.append(BadToolCall(id=tool_id, name=part.name, problem=problem))
        return ToolUseBlock(
            id=tool_id, name=part.name, input=arguments, signature=part.signature, signed_by=self._signer(part)
        )

    def _signer(self, part: _Part) -> str | None:
        return None if part.signature is None and part.redacted is None else self.signed_by

    def _piece(self, kind: str, piece_kind: PieceKind, key: Hashable, delta: Any) -> Piece | None:
        if not isinstance(delta, str):
            return None
        part = self._part(kind, key)
        if not delta.isascii() or part.half:
            delta = part.whole_characters(delta)
        if not delta:
            return None
        part.texts.append(delta)
        self.size_bytes += len(delta)
        return Piece(kind=piece_kind, text=delta, block_index=part.index, tool=part.name or None)

    def _part(self, kind: str, key: Hashable) -> _Part:
        part = self._parts.get(key)
        if part is None or part.kind != kind:
            # A wire that reuses an index for another kind of block began a new block; neither is lost.
            if part is not None:
                self._parts[(key, part.index)] = part
                del self._parts[key]
            part = self._parts[key] = _Part(kind, len(self._parts))
        return part


def free_id(wanted: str, taken: Collection[str]) -> str:
    """A call's id, or where another call has that one, the next of ours that none has."""
    if wanted not in taken:
        return wanted
    return next(made for number in count(len(taken)) if (made := f"call_{number}") not in taken)


def with_ids_of_its_own(answer: Answer, conversation: Conversation) -> Answer:
    """The answer with no id that a call of the conversation has: providers tell calls apart by it over the whole of it,
    and some count anew in each turn, or give none."""
    calls = [block.id for block in answer.blocks if isinstance(block, ToolUseBlock)]
    if not calls:
        return answer
    asked = (block for message in conversation.messages for block in message.blocks)
    before = {block.id for block in asked if isinstance(block, ToolUseBlock)}
    if before.isdisjoint(calls):
        return answer
    taken, ids = before.union(calls), dict[str, str]()
    for call in calls:
        ids[call] = free_id(call, taken) if call in before else call
        taken.add(ids[call])
    return replace(
        answer,
        blocks=tuple(
            replace(block, id=ids[block.id]) if isinstance(block, ToolUseBlock) else block for block in answer.blocks
        ),
        bad_tool_calls=tuple(replace(bad, id=ids[bad.id]) for bad in answer.bad_tool_calls),
    )


def as_kept(value: Any) -> tuple[dict[str, Any], str]:
    """A JSON object of an answer as it can be sent back, and its text. Half a character in it, which no wire takes, is
    replaced. Raises ValueError, TypeError or RecursionError for what is no such object."""
    if not isinstance(value, Mapping):
        raise TypeError(f"a JSON object is wanted, not {type(value).__name__}")
    kept, text = dict(value), json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    sound = _sound(text)
    return (kept, text) if sound == text else (json.loads(sound), sound)


def parse_arguments(raw: Any) -> tuple[dict[str, Any], str]:
    """A tool call's arguments, and what is wrong with them ("" if nothing). Nothing at all is no arguments."""
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return {}, ""
    try:
        value = strict_value(raw) if isinstance(raw, str) else raw
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # it will have to be sent back
    except UnicodeEncodeError:
        return {}, "the arguments hold half a character (a lone surrogate)"
    except (ValueError, TypeError, RecursionError) as error:
        return {}, f"the arguments are not JSON ({str(error)[:100]})"
    if not isinstance(value, dict):
        return {}, f"the arguments must be a JSON object, not {type(value).__name__}"
    return value, ""


def count_without(total: Any, *within: Any) -> int | None:
    """A count less those that it includes. None where it is no count itself."""
    if not _is_count(total):
        return None
    return max(int(total) - sum(int(part) for part in within if _is_count(part)), 0)


def _is_count(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= MOST_TOKENS:
        return False
    return value == int(value)


def _sound(text: str) -> str:
    """Text that can be encoded: JSON escapes can smuggle in half a character, which no store and no wire takes."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
