"""Changes to the text of a catalog file that leave everything else in it as it is: order, comments, indents, line ends.
Here statuses; `adding` puts in what is new.

The file is parsed for where things stand (PyYAML's marks), and only there is text put in or replaced. Pure: text in,
text out. Whoever writes the result loads it first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import yaml

from interlock.errors import CatalogError

from .document import compose
from .words import Status

#: Stands behind a status that was set by `interlock catalog discover`, and only by it.
_MARK = re.compile(r" *(?:#|;) (?:unlisted|unreachable) since \d{4}-\d{2}-\d{2} \(interlock catalog discover\)")


@dataclass(frozen=True, slots=True)
class _Change:
    start: int
    end: int
    text: str


def marked_by_discover(text: str, file: str) -> frozenset[str]:
    """The ids of the entries whose status `interlock catalog discover` has set."""
    entries = _entries(text, file)
    return frozenset(name for name, node in entries.items() if _is_marked(text, node, entries.values()))


def with_status(text: str, file: str, wanted: Mapping[str, Status], today: date) -> str:
    """The text with these statuses at the entries of these ids. One that is not open is marked as discover's; `open`
    takes the mark away."""
    entries = _entries(text, file)
    changes: list[_Change] = []
    for name, status in wanted.items():
        changes += _set_status(text, file, entries[name], name, status, today, entries.values())
    return _applied(text, changes)


def _set_status(
    text: str, file: str, node: yaml.MappingNode, name: str, status: Status, today: date, others: Collection[yaml.Node]
) -> Iterator[_Change]:
    own, mark = _status(node), f"{status.value} since {today:%Y-%m-%d} (interlock catalog discover)"
    closed = status is not Status.OPEN
    if own is not None:
        yield _Change(own.start_mark.index, own.end_mark.index, status.value)
        yield _remark(text, _behind(node, own), mark if closed else "", others)
    elif node.flow_style:
        end = node.end_mark.index - 1
        while text[end - 1].isspace() or text[end - 1] == ",":
            end -= 1
        yield _Change(end, end, f", status: {status.value}")
        yield _remark(text, node.end_mark.index, mark if closed else "", others)
    else:
        key = node.value[0][0].start_mark
        at = line_end(text, last_index(node))
        newline = "\r\n" if "\r\n" in text else "\n"
        comment = f"  # {mark}" if closed else ""
        yield _Change(at, at, f"{newline}{' ' * key.column}status: {status.value}{comment}")


def _behind(node: yaml.MappingNode, status: yaml.Node) -> int:
    """Where the comment on a status may begin: behind it, or behind the entry where that ends on the same line."""
    same = node.flow_style and node.end_mark.line == status.end_mark.line
    return int((node if same else status).end_mark.index)


def _ends_its_line(text: str, index: int, others: Collection[yaml.Node]) -> bool:
    """Whether the comment at the end of this line belongs to what ends at this place: no entry follows on it."""
    end = line_end(text, index)
    return not any(index <= other.start_mark.index < end for other in others)


def _remark(text: str, index: int, mark: str, others: Collection[yaml.Node]) -> _Change:
    """The mark at the end of a line: put there, replaced or taken away. A comment of somebody else's stays. Where
    another entry follows on the line, the line is broken: each entry has its own comment."""
    if not _ends_its_line(text, index, others):
        after = index + len(text[index:]) - len(text[index:].lstrip(" ,"))
        newline = "\r\n" if "\r\n" in text else "\n"
        return _Change(index, after, f",  # {mark}{newline}    " if mark else text[index:after])
    end = line_end(text, index)
    rest = text[index:end]
    kept = _MARK.sub("", rest)
    if mark:
        kept = f"{kept.rstrip()}; {mark}" if "#" in kept else f"{kept.rstrip()}  # {mark}"
    return _Change(index, end, kept)


def _is_marked(text: str, node: yaml.MappingNode, others: Collection[yaml.Node]) -> bool:
    own = _status(node)
    if own is None:
        return False
    index = _behind(node, own)
    return _ends_its_line(text, index, others) and _MARK.search(text[index : line_end(text, index)]) is not None


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


def last_index(node: yaml.Node) -> int:
    """Where the last thing in a node ends. A block's own mark lies behind the comments that follow it, and an alias has
    the marks of what it stands for: its key is before it, on the same line."""
    own = node.end_mark.index if _is_scalar(node) or getattr(node, "flow_style", False) else node.start_mark.index
    if not isinstance(node, yaml.CollectionNode):
        return own
    inner = [each for item in node.value for each in (item if isinstance(item, tuple) else (item,))]
    return max([own, *map(last_index, inner)])


def line_end(text: str, index: int) -> int:
    """The end of the line on which index lies: before its line break."""
    if index > 0 and text[index - 1] == "\n":  # behind a block of text, which ends with its line
        index -= 1
        return index - 1 if text[index - 1 : index] == "\r" else index
    end = text.find("\n", index)
    end = len(text) if end < 0 else end
    return end - 1 if end > index and text[end - 1] == "\r" else end
