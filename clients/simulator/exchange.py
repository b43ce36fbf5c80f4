"""What passes between a wire and the provider: what is asked, what the answer is to be, and the answer as it is sent.

A wire reads a request into an `Ask`. An answer function or a step makes an `Answer`, without counting anything. The two
become a `Reply`: blocks, a stop and token counts, which the wire writes in its own words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

UNSET: Final = object()  # None is an answer: JSON null

Stop: TypeAlias = Literal["end", "stop_sequence", "tool", "length", "refusal", "window", "pause"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTool:
    """A tool the request offers. `schema` is the JSON schema of its arguments."""

    name: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDecision:
    """A state and its questions, in the form of the System One wire whatever the wire: `type`, `instructions`,
    `criteria`."""

    state: Any
    questions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedEmbeddings:
    """Texts, how wide their model's vectors are and how wide they are wanted; and the form in which the wire asks for
    them: numbers as base64, without their type, in a batch."""

    texts: tuple[str, ...]
    native: int
    width: int
    base64: bool = False
    untyped: bool = False
    batched: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request, read: the same for every wire.

    `text` is what the last user turn says (tool results included), `system` the system text, `schema` the JSON schema
    the answer must obey, `forced_tool` the tool it must call. `thinking_tokens` is the thinking budget: 0 for none, 1
    where a wire names no number.
    `prompt` is all the text that counts as input; `marks` are (text up to it, lifetime in seconds) per cache mark.
    """

    model: str = ""
    text: str = ""
    system: str = ""
    prompt: str = ""
    max_output_tokens: int | None = None
    streamed: bool = False
    schema: Mapping[str, Any] | None = None
    any_json: bool = False
    tools: tuple[AskedTool, ...] = ()
    forced_tool: AskedTool | None = None
    stop_sequences: tuple[str, ...] = ()
    thinking_tokens: int = 0
    thinking_shown: bool = True
    extra_input_tokens: int = 0  # images and documents
    marks: tuple[tuple[str, float], ...] = ()
    include_usage: bool = False
    logprobs: int | None = None  # top alternatives a token; None: not asked for
    decision: AskedDecision | None = None
    embeddings: AskedEmbeddings | None = None


NOTHING_ASKED: Final = Ask()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of an answer. `input` may be any JSON value; a str is sent as it is, valid JSON or not."""

    name: str
    input: Any = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal by the model: the category and explanation as the provider words them."""

    category: str | None = None
    explanation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a request is answered with. Whatever is not said is worked out from the request.

    `json` is a structured answer, given in the form the request asked for: arguments of the forced tool, else text.
    `server_tools` is what tools of the provider's own did, in the wire's form and sent as it is before the text:
    content blocks of Anthropic, items of Responses, parts of Gemini; the other wires have no place for it.
    `pieces` is the text cut as it is to be streamed. `stop_reason` is the wire's own word, sent as it is. The token
    counts replace the counted ones in what is reported, and in what is metered.
    """

    text: str | None = None
    json: Any = UNSET
    tool_calls: tuple[ToolCall, ...] = ()
    server_tools: tuple[Mapping[str, Any], ...] = ()
    thinking: str | None = None
    redacted_thinking: str | None = None
    refusal: Refusal | None = None
    pieces: tuple[str, ...] | None = None
    stop_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCall:
    """A tool call as it is sent: `arguments` is JSON text, `value` the parsed form where it is valid JSON."""

    id: str
    name: str
    arguments: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer as it is sent. `input_tokens` is fresh input, apart from what the cache gave or took."""

    id: str
    model: str
    created_s: int
    text: str | None
    pieces: tuple[str, ...]
    thinking: str | None
    signature: str
    redacted_thinking: str | None
    tool_calls: tuple[ReplyCall, ...]
    server_tools: tuple[Mapping[str, Any], ...]
    refusal: Refusal | None
    stop: Stop
    stop_sequence: str | None
    stop_reason: str | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cache_write_1h_tokens: int
    reasoning_tokens: int
