"""Changes to the text of a catalog file that leave everything else in it as it is: order, comments, indents, line ends.

The file is parsed for where things stand (PyYAML's marks), and only there is text put in or replaced. Pure: text in,
text out. Whoever writes the result loads it first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import yaml

from interlock.errors import CatalogError

from .document import compose
from .words import Status

#: Stands behind a status that was set by `interlock catalog discover`, and only by it.
_MARK = re.compile(r" *(?:#|;) (?:unlisted|unreachable) since \d{4}-\d{2}-\d{2} \(interlock catalog discover\)")

_WORD = re.compile(r"[A-Za-z][\w./@+-]*(:[\w./@+-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry to be put in: its fields as the file has them, and what is to be said of it in comments."""

    fields: Mapping[str, Any]
    comments: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Change:
    start: int
    end: int
    text: str


def marked_by_discover(text: str, file: str) -> frozenset[str]:
    """The ids of the entries whose status `interlock catalog discover` has set."""
    return frozenset(
        name for name, node in _entries(text, file).items() if (own := _status(node)) and _mark_on_line(text, own)
    )


def with_status(text: str, file: str, wanted: Mapping[str, Status], today: date) -> str:
    """The text with these statuses at the entries of these ids. One that is not open is marked as discover's; `open`
    takes the mark away."""
    entries = _entries(text, file)
    changes: list[_Change] = []
    for name, status in wanted.items():
        changes += _set_status(text, file, entries[name], name, status, today)
    return _applied(text, changes)


def with_entries(text: str, file: str, entries: Sequence[NewEntry], heading: str) -> str:
    """The text with entries put in behind the last one. Raises `CatalogError` where `models` is no plain list."""
    if not entries:
        return text
    models = _models(text, file)
    newline = "\r\n" if "\r\n" in text else "\n"
    line = models.start_mark.line + 1
    if isinstance(models, yaml.SequenceNode) and models.flow_style and models.value:
        raise CatalogError(
            "is written in brackets: entries can be put into a list with a dash a line", file=file, line=line,
            key="models",
        )  # fmt: skip
    if isinstance(models, yaml.SequenceNode) and models.value:
        at, indent = _line_end(text, _last_index(models)), models.start_mark.column
    else:  # `models: []`, or nothing behind it
        start, end = models.start_mark.index, models.end_mark.index
        text = text[:start].rstrip(" ") + text[end:]
        at, indent = _line_end(text, len(text[:start].rstrip(" "))), 2
    pad = " " * indent
    lines = ["", f"{pad}# {heading}"]
    for entry in entries:
        lines += [f"{pad}# {comment}" for comment in entry.comments]
        first, *rest = _written(entry.fields).splitlines()
        lines += [f"{pad}- {first}", *(f"{pad}  {each}" for each in rest)]
    return text[:at] + newline.join(lines) + text[at:]


def _set_status(
    text: str, file: str, node: yaml.MappingNode, name: str, status: Status, today: date
) -> Iterator[_Change]:
    own, mark = _status(node), f"{status.value} since {today:%Y-%m-%d} (interlock catalog discover)"
    closed = status is not Status.OPEN
    if own is not None:
        yield _Change(own.start_mark.index, own.end_mark.index, status.value)
        yield _remark(text, own.end_mark.index, mark if closed else "")
    elif node.flow_style:
        end = node.end_mark.index - 1
        while text[end - 1].isspace() or text[end - 1] == ",":
            end -= 1
        yield _Change(end, end, f", status: {status.value}")
        yield _remark(text, node.end_mark.index, mark if closed else "")
    else:
        key = node.value[0][0].start_mark
        at = _line_end(text, _last_index(node))
        newline = "\r\n" if "\r\n" in text else "\n"
        comment = f"  # {mark}" if closed else ""
        yield _Change(at, at, f"{newline}{' ' * key.column}status: {status.value}{comment}")


def _remark(text: str, index: int, mark: str) -> _Change:
    """The mark at the end of a line: put there, replaced or taken away. A comment of somebody else's stays."""
    end = _line_end(text, index)
    rest = text[index:end]
    kept = _MARK.sub("", rest)
    if mark:
        kept = f"{kept.rstrip()}; {mark}" if "#" in kept else f"{kept.rstrip()}  # {mark}"
    return _Change(index, end, kept)


def _mark_on_line(text: str, node: yaml.Node) -> bool:
    return _MARK.search(text[node.end_mark.index : _line_end(text, node.end_mark.index)]) is not None


def _applied(text: str, changes: Sequence[_Change]) -> str:
    for change in sorted(changes, key=lambda change: (change.start, change.end), reverse=True):
        text = text[: change.start] + change.text + text[change.end :]
    return text


def _models(text: str, file: str) -> yaml.Node:
    found = [value for key, value in compose(text, file).value if getattr(key, "value", None) == "models"]
    if not found:
        raise CatalogError("has no `models:`", file=file)
    node: yaml.Node = found[0]
    return node


def _entries(text: str, file: str) -> dict[str, yaml.MappingNode]:
    found: dict[str, yaml.MappingNode] = {}
    for node in getattr(_models(text, file), "value", ()) or ():
        if isinstance(node, yaml.MappingNode) and (name := _field(node, "id")) is not None:
            found[str(name.value)] = node
    return found


def _status(node: yaml.MappingNode) -> yaml.ScalarNode | None:
    return _field(node, "status")


def _field(node: yaml.MappingNode, name: str) -> yaml.ScalarNode | None:
    """A field that stands in the entry itself."""
    return next(
        (value for key, value in node.value if _is_scalar(key) and key.value == name and _is_scalar(value)), None
    )


def _is_scalar(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode)


def _last_index(node: yaml.Node) -> int:
    """Where the last thing in a node ends. A block's own mark lies behind the comments that follow it, and an alias has
    the marks of what it stands for: its key is before it, on the same line."""
    own = node.end_mark.index if _is_scalar(node) or getattr(node, "flow_style", False) else node.start_mark.index
    if not isinstance(node, yaml.CollectionNode):
        return own
    inner = [each for item in node.value for each in (item if isinstance(item, tuple) else (item,))]
    return max([own, *map(_last_index, inner)])


def _line_end(text: str, index: int) -> int:
    """The end of the line on which index lies: before its line break."""
    if index > 0 and text[index - 1] == "\n":  # behind a block of text, which ends with its line
        index -= 1
        return index - 1 if text[index - 1 : index] == "\r" else index
    end = text.find("\n", index)
    end = len(text) if end < 0 else end
    return end - 1 if end > index and text[end - 1] == "\r" else end


class _Plain(yaml.SafeDumper):
    """Numbers and dates as a person writes them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    """In quotes where a reader could take it for something else: 1e6 is a number to some."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if _WORD.fullmatch(value) else '"')


_Plain.add_representer(Decimal, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:float", f"{value:f}"))
_Plain.add_representer(str, _text)


def _written(fields: Mapping[str, Any]) -> str:
    """A field a line; what is inside a field stays on its line."""
    lines = []
    for name, value in fields.items():
        shown = yaml.dump(
            value, Dumper=_Plain, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6
        )
        lines.append(f"{name}: {shown.removesuffix('...' + chr(10)).rstrip(chr(10))}")
    return "\n".join(lines)
