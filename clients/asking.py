"""What is asked of a provider, settled before it is encoded: options over the entry's own, and the way in which a typed
answer is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

from interlock.catalog.entry import ModelEntry
from interlock.catalog.words import Depth

from .conversation import Conversation
from .options import NO_OPTIONS, CallOptions, Tool
from .schema import Dialect, UnsupportedSchema
from .shapes import check_options
from .structured import Shape
from .turns import refused

StructureMode: TypeAlias = Literal["native", "tool", "tool_auto", "prompt"]

#: Options that every wire takes, or that ask for nothing where it does not.
_ALWAYS = frozenset({"cache", "cache_ttl", "provider_options"})
_SETTINGS = ("temperature", "top_p", "seed", "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """How a typed answer is asked for: the provider's strict mode, a forced or offered tool, or words in the prompt."""

    mode: StructureMode
    shape: Shape
    schema: Mapping[str, Any]

    @property
    def tool_name(self) -> str | None:
        return self.shape.name if self.mode in ("tool", "tool_auto") else None

    @property
    def tool(self) -> Tool:
        return Tool(self.shape.name, "Give your answer by calling this tool.", self.schema)

    @property
    def instruction(self) -> str:
        """What the prompt says where nothing else can."""
        return (
            "Answer with one JSON value that fits this JSON schema, and with nothing else: no code fence, no "
            f"comment.\n{self.shape.schema_text}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, checked and settled: all that `encode` needs. Token counts are exactly what was reserved."""

    entry: ModelEntry
    conversation: Conversation
    options: CallOptions
    structure: Structure | None
    stream: bool
    max_output_tokens: int
    thinking_tokens: int
    depth: Depth

    @property
    def system(self) -> str | None:
        """The system text, with the words that ask for a typed answer where only words can."""
        if self.structure is None or self.structure.mode != "prompt":
            return self.conversation.system
        return "\n\n".join(part for part in (self.conversation.system, self.structure.instruction) if part)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The caller's tools, and the one that carries a typed answer."""
        if self.structure is None or self.structure.tool_name is None:
            return self.options.tools
        return (*self.options.tools, self.structure.tool)

    @property
    def tool_choice(self) -> str | None:
        """`auto`, `any`, `none`, the name of a tool, or None. A typed answer forces its tool, but leaves the caller's
        own tools a chance."""
        if self.options.tool_choice is not None or self.structure is None or self.structure.mode != "tool":
            return self.options.tool_choice
        return "any" if self.options.tools else self.structure.tool_name


def merged_options(entry: ModelEntry, options: CallOptions | None, takes: frozenset[str]) -> CallOptions:
    """The call's options over the entry's own. What the wire or the model does not take is refused by name."""
    asked = options or NO_OPTIONS
    if isinstance(asked.stop, str):  # a text is a sequence of texts, and never meant so
        asked = replace(asked, stop=(asked.stop,))
    if options is not None:
        check_options(asked, entry)
    for option in fields(asked):
        name, value = option.name, getattr(asked, option.name)
        if name in _ALWAYS or value is None or value == ():
            continue
        if name not in takes or name in entry.unsupported:
            raise refused(f"{entry.id} does not take {name!r}", model=entry.id)
    if asked.tool_choice is not None:
        _check_tool_choice(asked, entry)
    _check_names(asked.tools, entry)
    _check_numbers(asked, entry)
    unknown = sorted(name for name in entry.parameters if name in _SETTINGS and name not in takes)
    if unknown:
        raise refused(f"{entry.id} sets {unknown[0]!r} in its parameters, which {entry.provider} does not take",
                      model=entry.id)  # fmt: skip
    defaults: dict[str, Any] = {
        name: tuple(value) if name == "stop" and not isinstance(value, str) else (value,) if name == "stop" else value
        for name, value in entry.parameters.items()
        if name in _SETTINGS and getattr(asked, name) in (None, ())
    }
    return replace(asked, **defaults) if defaults else asked


def refuse_reserved(given: Iterable[Mapping[str, Any]], reserved: frozenset[str]) -> None:
    """`provider_options` may add to the wire, but not undo what was reserved."""
    for options in given:
        taken = sorted(reserved & options.keys())
        if taken:
            raise refused(f"provider_options cannot set {taken[0]!r}: it belongs to the call and its reservation")


def joined_tools(own: Any, given: Any, *, model: str) -> list[Any]:
    """The call's own tools and those of `provider_options`, which are its provider's to run: neither is lost. One that
    has a name of the call's own says the same tool in the wire's words, and stands instead of it."""
    if not isinstance(given, (list, tuple)):
        raise refused(f"tools in provider_options must be a list, not {type(given).__name__}", model=model)
    theirs = {name for tool in given if (name := tool_name(tool)) is not None}
    return [*(tool for tool in own if tool_name(tool) not in theirs), *given]


def tool_name(tool: Any) -> str | None:
    """What a tool is called on a wire that says it in the tool, or in its `function`."""
    said = tool.get("function", tool) if isinstance(tool, Mapping) else None
    name = said.get("name") if isinstance(said, Mapping) else None
    return name if isinstance(name, str) else None


def choose_structure(
    entry: ModelEntry, wanted: Any, dialect: Dialect | None, *, has_tools: bool, server_tools: bool = False
) -> Structure | None:
    """Native where the entry and the schema allow it, else a tool, else words in the prompt. A tool is offered and not
    forced beside tools that the provider runs itself, or those would never run."""
    if wanted is None:
        return None
    shape = Shape.of(wanted)
    mode: StructureMode = entry.structured
    if mode == "native":
        try:
            if dialect is not None:
                return Structure(mode="native", shape=shape, schema=shape.strict(dialect))
        except UnsupportedSchema as error:
            if not has_tools:
                raise refused(f"{shape.name} cannot be asked of {entry.id}: {error}", model=entry.id) from None
        mode = "tool"
    if mode in ("tool", "tool_auto") and (not has_tools or "tools" in entry.unsupported):
        mode = "prompt"
    if mode == "tool" and server_tools:
        mode = "tool_auto"
    return Structure(mode=mode, shape=shape, schema=shape.schema)


def _check_tool_choice(asked: CallOptions, entry: ModelEntry) -> None:
    if not asked.tools:
        raise refused("tool_choice is given without tools", model=entry.id)
    names = {tool.name for tool in asked.tools}
    if asked.tool_choice not in names | {"auto", "any", "none"}:
        raise refused(f"tool_choice {asked.tool_choice!r} is none of auto, any, none, {', '.join(sorted(names))}",
                      model=entry.id)  # fmt: skip


def _check_names(tools: tuple[Tool, ...], entry: ModelEntry) -> None:
    names = [tool.name for tool in tools]
    if not all(name.strip() for name in names):
        raise refused("a tool needs a name, and one has none", model=entry.id)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise refused(f"the tool {twice!r} is given twice", model=entry.id)


def _check_numbers(asked: CallOptions, entry: ModelEntry) -> None:
    for name, low, high in (("temperature", 0.0, 2.0), ("top_p", 0.0, 1.0)):
        value = getattr(asked, name)
        if value is not None and not low <= value <= high:
            raise refused(f"{name} must lie between {low:g} and {high:g}, not {value!r}", model=entry.id)
