"""The YAML text as a tree of nodes that know their lines, with what a catalog does not allow already refused.

PyYAML scans and parses; nothing of its type guessing is used. Bounded: the size of the text, the depth of the tree and
the number of nodes once aliases are followed, so no file can take the process down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from interlock.errors import CatalogError

LARGEST_TEXT = 4 * 1024 * 1024
DEEPEST = 24
MOST_NODES = 200_000
MOST_PROBLEMS = 100

Path = tuple[str | int, ...]


def dotted(path: Path) -> str | None:
    """`models[2].limits.rpm`: a path as an error names it. None for the file itself."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or None


@dataclass
class Problems:
    """The mistakes found in one file, in the order of their lines."""

    file: str
    found: list[CatalogError] = field(default_factory=list)
    visited: int = 0

    def add(self, message: str, line: int | None, path: Path = ()) -> None:
        self.found.append(CatalogError(message, file=self.file, line=line, key=dotted(path)))
        if len(self.found) >= MOST_PROBLEMS:
            self.raise_any()

    def visit(self, line: int) -> None:
        """Count a node that is read. Aliases make few characters stand for many nodes, so the walk has a bound."""
        self.visited += 1
        if self.visited > MOST_NODES:
            raise CatalogError(f"its aliases stand for more than {MOST_NODES:,} nodes", file=self.file, line=line)

    def raise_any(self) -> None:
        if not self.found:
            return
        ordered = sorted(self.found, key=lambda error: error.line or 0)
        first = ordered[0]
        if len(ordered) > 1:
            first.args = ("\n".join(str(error) for error in ordered),)
        first.problems = tuple(problem for error in ordered for problem in error.problems)
        raise first


class _BoundedLoader(yaml.SafeLoader):
    """Composes nodes; refuses a tree that is too deep before Python's own recursion limit does, and every tag."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if self.depth >= DEEPEST:
            raise _RefusedError(f"nested more than {DEEPEST} deep", event.start_mark.line + 1)
        if getattr(event, "tag", None) not in (None, "!"):
            raise _RefusedError(f"has a YAML tag ({event.tag}), and a catalog knows none", event.start_mark.line + 1)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


class _RefusedError(Exception):
    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message, self.line = message, line


def compose(text: str, file: str) -> yaml.MappingNode:
    """The file's top mapping. Raises `CatalogError` for text that is not one YAML mapping."""
    if len(text) > LARGEST_TEXT:
        raise CatalogError(f"the file is larger than {LARGEST_TEXT:,} characters", file=file)
    try:
        loader = _BoundedLoader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except _RefusedError as error:
        raise CatalogError(error.message, file=file, line=error.line) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = "; ".join(part for part in (error.context, error.problem) if part)
        raise CatalogError(f"not YAML: {said}", file=file, line=mark.line + 1 if mark else None) from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        # ReaderError: a character that YAML does not allow; the others: an escape beyond Unicode, a huge %YAML version.
        raise CatalogError(f"not YAML: {_first_line(error)}", file=file) from None
    if node is None:
        raise CatalogError("the file is empty: it needs at least `models:`", file=file)
    if not isinstance(node, yaml.MappingNode):
        raise CatalogError("must be a mapping with `models:` at its top", file=file, line=line_of(node))
    return node


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def line_of(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def is_quoted(node: yaml.ScalarNode) -> bool:
    return node.style is not None or node.tag == "!"


def pairs(node: yaml.MappingNode, path: Path, problems: Problems) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Each key once, with its nodes. Merge keys are followed; a key given twice, even through `<<`, is a problem."""
    seen: dict[str, int] = {}
    for key_node, value in _flat(node, path, problems, 0):
        if not isinstance(key_node, yaml.ScalarNode):
            problems.add("a key must be a plain word", line_of(key_node), path)
            continue
        key = str(key_node.value)
        if key in seen:
            problems.add(f"written twice: first on line {seen[key]}", line_of(key_node), (*path, key))
            continue
        seen[key] = line_of(key_node)
        yield key, key_node, value


def _flat(node: yaml.MappingNode, path: Path, problems: Problems, depth: int) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    for key, value in node.value:
        problems.visit(line_of(key))
        if not (isinstance(key, yaml.ScalarNode) and key.value == "<<" and not is_quoted(key)):
            yield key, value
            continue
        merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for source in merged:
            if not isinstance(source, yaml.MappingNode) or depth >= DEEPEST:
                problems.add("<< takes a mapping, or a list of them", line_of(key), path)
                continue
            yield from _flat(source, path, problems, depth + 1)
