"""What stands beside the conversation in a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool the model may call. `schema` is the JSON schema of its arguments, an object."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


#: `auto`, `any` (some tool), `none`, or the name of one tool.
ToolChoice: TypeAlias = str


class StreamingMode(StrEnum):
    """LIVE passes pieces through as they come; SAFE buffers the whole answer first, so that a re-run shows nobody."""

    LIVE = "live"
    SAFE = "safe"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """What other libraries pass beside the messages. None leaves the entry's own value, or the provider's.

    `cache` marks system, tools and the last turn for the provider's cache. `provider_options` is merged last into the
    wire. What the model does not take is refused by name before anything is sent.
    """

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    cache: bool = False
    cache_ttl: Literal["5m", "1h"] | None = None
    provider_options: Mapping[str, Any] = field(default_factory=dict)


NO_OPTIONS = CallOptions()
