"""What is said to a model: one immutable conversation that goes to any provider, each block through its encoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

Role: TypeAlias = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Text. `signature` is what its provider wants back with it, opaque; `signed_by` the wire that gave it."""

    text: str
    cache: bool = False  # a cache mark after this block
    signature: str | None = field(default=None, kw_only=True)
    signed_by: str | None = field(default=None, kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBlock:
    """An image: bytes with their media type, or a URL the provider fetches. Exactly one of the two."""

    data: bytes | None = None
    url: str | None = None
    media_type: str = "image/png"
    cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentBlock:
    """A document: bytes with their media type, or a URL. Exactly one of the two."""

    data: bytes | None = None
    url: str | None = None
    media_type: str = "application/pdf"
    name: str = "document"
    cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUseBlock:
    """A tool call the model made. `input` is the parsed arguments object. `signature` goes back with it as it came."""

    id: str
    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    signature: str | None = None
    signed_by: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultBlock:
    """What a tool call gave back."""

    tool_use_id: str
    content: str = ""
    is_error: bool = False
    cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingBlock:
    """A model's thinking. It goes back byte for byte with its signature; `redacted` is opaque data of the provider.

    `signed_by` names the wire whose signature it is: to any other wire the block is left out, because a foreign
    signature is refused. None: whoever is asked is taken to have signed it.
    """

    text: str = ""
    signature: str | None = None
    redacted: str | None = None
    signed_by: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerToolBlock:
    """A part of an answer in the wire's own form: what a tool that the provider runs itself was asked or gave (a
    search, code, an MCP call), or anything else that no class here stands for. It is no text and no call to answer.

    `kind` is the wire's own word for it (`web_search_tool_result`, `code_interpreter_call`, `executableCode`),
    `payload` the JSON object that came. It goes back in its place and as it came to the wire that `signed_by` names;
    to any other wire it is left out. None: whoever is asked is taken to know it.
    """

    kind: str
    payload: Mapping[str, Any]
    signed_by: str | None = field(default=None, compare=False, repr=False)


Block: TypeAlias = (
    TextBlock | ImageBlock | DocumentBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | ServerToolBlock
)


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """The text blocks joined; thinking and what a provider's own tools did never join it."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))


@dataclass(frozen=True, slots=True)
class Conversation:
    """System text and turns. Every method returns a new one."""

    messages: tuple[Message, ...] = ()
    system: str | None = None

    @staticmethod
    def of(content: Conversation | str | Iterable[Block], *, system: str | None = None) -> Conversation:
        """From text, blocks or a conversation: text stands wherever a conversation may."""
        if isinstance(content, Conversation):
            return content if system is None else replace(content, system=system)
        return Conversation(system=system).user(content)

    def user(self, content: str | Iterable[Block]) -> Conversation:
        return self._with("user", content)

    def assistant(self, content: str | Iterable[Block]) -> Conversation:
        return self._with("assistant", content)

    def _with(self, role: Role, content: str | Iterable[Block]) -> Conversation:
        if not isinstance(content, (str, Iterable)) or isinstance(content, (bytes, Mapping)):
            raise TypeError(f"a conversation takes text or blocks, not {type(content).__name__}")
        blocks: tuple[Block, ...] = (TextBlock(content),) if isinstance(content, str) else tuple(content)
        return replace(self, messages=(*self.messages, Message(role, blocks)))
