"""Entries and pools put into the text of a catalog file, which stays as it is otherwise: in lines where the file has
lines, in brackets where it has brackets. Pure, as `editing` is, from which this takes where things stand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import yaml

from interlock.errors import CatalogError

from .document import compose
from .editing import last_index, line_end

_WORD = re.compile(r"[A-Za-z][\w./@+-]*(:[\w./@+-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry to be put in: its fields as the file has them, what is to be said of it in comments, and the pools that
    it draws on and the file has not."""

    fields: Mapping[str, Any]
    comments: Sequence[str] = ()
    pools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Item:
    """What stands in a collection: comments, then lines. In brackets it is one line and gets a comma."""

    comments: Sequence[str]
    block: Sequence[str]
    flow: str


def with_entries(text: str, file: str, entries: Sequence[NewEntry], heading: str) -> str:
    """The text with entries behind the last one, and the pools they need behind the last of these."""
    if not entries:
        return text
    pools: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        pools |= entry.pools
    items = []
    for entry in entries:
        first, *rest = _lines(entry.fields)
        items.append(_Item(entry.comments, [f"- {first}", *(f"  {line}" for line in rest)], _flow(entry.fields)))
    return with_pools(_with(text, file, "models", items, heading), file, pools, heading)


def with_pools(text: str, file: str, pools: Mapping[str, Mapping[str, Any]], heading: str) -> str:
    """The text with pools behind the last one; where it has none, with a section for them before the models."""
    items = [_Item((), [line], line) for name, limits in pools.items() for line in _lines({name: limits})]
    if not items:
        return text
    top = compose(text, file)
    if any(key.value == "pools" for key, _ in top.value):
        return _with(text, file, "pools", items, heading)
    if top.flow_style:
        return _in_brackets(text, top, [_Item((), (), f"pools: {_flow(pools)}")], heading)
    newline, (models, _) = _newline(text), _section(text, file, "models")
    at = models.start_mark.index
    while at > 0 and (above := text[:at].splitlines(keepends=True)[-1]).lstrip().startswith("#"):
        at -= len(above)  # its comment goes with it
    lines = [f"pools:  # {heading}", *(f"  {line}" for item in items for line in item.block), ""]
    return text[:at] + "".join(line + newline for line in lines) + text[at:]


def _with(text: str, file: str, section: str, items: Sequence[_Item], heading: str) -> str:
    key, node = _section(text, file, section)
    if isinstance(node, yaml.CollectionNode) and not node.value and not compose(text, file).flow_style:
        end = node.end_mark.index  # `models: []`
        text = text[: node.start_mark.index].rstrip(" ") + text[end:]
        return _in_lines(text, line_end(text, key.end_mark.index), key.start_mark.column + 2, items, heading)
    if getattr(node, "flow_style", False):
        if node.start_mark.index < key.end_mark.index:
            raise CatalogError("is an alias: entries can be put into a list of its own", file=file,
                               line=key.start_mark.line + 1, key=section)  # fmt: skip
        return _in_brackets(text, node, items, heading)
    if isinstance(node, yaml.CollectionNode):
        return _in_lines(text, line_end(text, last_index(node)), node.start_mark.column, items, heading)
    start, end = node.start_mark.index, node.end_mark.index  # nothing stands behind it
    text = text[:start].rstrip(" ") + text[end:]
    return _in_lines(text, line_end(text, key.end_mark.index), key.start_mark.column + 2, items, heading)


def _in_lines(text: str, at: int, indent: int, items: Sequence[_Item], heading: str) -> str:
    pad, lines = " " * indent, ["", f"{' ' * indent}# {heading}"]
    for item in items:
        lines += [f"{pad}# {comment}" for comment in item.comments]
        lines += [f"{pad}{line}" for line in item.block]
    return text[:at] + _newline(text).join(lines) + text[at:]


def _in_brackets(text: str, node: yaml.Node, items: Sequence[_Item], heading: str) -> str:
    """Behind the last thing in the brackets, each on a line of its own."""
    close, newline = node.end_mark.index - 1, _newline(text)
    before = _token_before(text, close)
    opened = isinstance(before, (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken, yaml.FlowEntryToken))
    at = before.end_mark.index
    head, gap = text[:at] + ("" if opened else ","), text[at:close].rstrip()
    tail = text[at + len(gap) : close]
    pad = " " * (_indent(text, node.start_mark.index) + 2)
    lines = [f"{pad}# {heading}"]
    for number, item in enumerate(items, start=1):
        lines += [f"{pad}# {comment}" for comment in item.comments]
        lines.append(f"{pad}{item.flow}{',' if number < len(items) else ''}")
    closing = tail[tail.rfind("\n") + 1 :] if "\n" in tail else pad[2:]
    return head + gap + newline + newline.join(lines) + newline + closing + text[close:]


def _token_before(text: str, close: int) -> yaml.Token:
    """What stands before the bracket that closes at this place. Comments are no tokens."""
    before = None
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if token.start_mark.index == close and token.end_mark.index == close + 1:
            break
        before = token
    assert before is not None
    return before


def _indent(text: str, index: int) -> int:
    line = text[text.rfind("\n", 0, index) + 1 : index]
    return len(line) - len(line.lstrip(" "))


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _section(text: str, file: str, name: str) -> tuple[yaml.Node, yaml.Node]:
    found = [(key, value) for key, value in compose(text, file).value if getattr(key, "value", None) == name]
    if not found:
        raise CatalogError(f"has no `{name}:`", file=file)
    pair: tuple[yaml.Node, yaml.Node] = found[0]
    return pair


class _Plain(yaml.SafeDumper):
    """Numbers and dates as a person writes them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    """In quotes where a reader could take it for something else: 1e6 is a number to some."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if _WORD.fullmatch(value) else '"')


_Plain.add_representer(Decimal, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:float", f"{value:f}"))
_Plain.add_representer(str, _text)


def _flow(value: Any) -> str:
    """On one line, in brackets where it is a collection."""
    shown: str = yaml.dump(
        value, Dumper=_Plain, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6
    )
    return shown.removesuffix("...\n").rstrip("\n")


def _lines(fields: Mapping[str, Any]) -> list[str]:
    """A field a line; what is inside a field stays on its line."""
    return [f"{_flow(name)}: {_flow(value)}" for name, value in fields.items()]
