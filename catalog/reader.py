"""From the tree of a file to plain values, led by the types of the models that the values are for.

The type of a field decides what a bare word is. Every mistake is added to `Problems` with its line; the walk goes on.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from enum import Enum
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import yaml
from pydantic import ValidationError

from . import scalars
from .document import DEEPEST, Path, Problems, is_quoted, line_of, pairs
from .entry import Strict
from .scalars import ScalarError


class _Wrong(Enum):
    """Stands for a value that was a problem, so that what contains it is not validated and blamed again."""

    WRONG = 0


WRONG: Final = _Wrong.WRONG

#: Marks a tuple that may be written as one word: `embeddings: wordllama`.
ONE_OR_MORE: Final = "one or more"


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean ...?)`, or nothing."""
    word = word.lower()[:80]
    by_lower = {name.lower(): name for name in known}
    close = [name for name in by_lower if sorted(name) == sorted(word)]  # swapped letters count much in a short word
    close = close or get_close_matches(word, by_lower, n=1, cutoff=0.7)
    return f" (did you mean {by_lower[close[0]]}?)" if close else ""


class Reader:
    """Reads nodes of one file. `lines` remembers where each path was read, for what validation finds later."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.lines: dict[Path, int] = {}

    def line(self, path: Path) -> int | None:
        """The line of `path`, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def add(self, message: str, path: Path) -> None:
        self.problems.add(message, self.line(path), path)

    def read(self, node: yaml.Node, wanted: Any, path: Path) -> Any:
        self.problems.visit(line_of(node))
        self.lines.setdefault(path, line_of(node))
        if len(path) > DEEPEST:  # an alias can stand inside its own anchor
            return self._wrong(node, f"nested more than {DEEPEST} deep", path[:4])
        marks: tuple[Any, ...] = ()
        while get_origin(wanted) is Annotated:
            wanted, *more = get_args(wanted)
            marks += tuple(more)
        origin = get_origin(wanted)
        if origin in (Union, types.UnionType):
            return self._optional(node, wanted, path)
        if isinstance(wanted, type) and issubclass(wanted, Strict):
            return self.model(node, wanted, path)
        if origin in (tuple, frozenset):
            return self._many(node, origin, get_args(wanted)[0], path, single=ONE_OR_MORE in marks)
        if origin is dict:
            key_type, value_type = get_args(wanted)
            return self._mapping(node, key_type, value_type, path)
        if wanted is Any:
            return self._anything(node, path)
        return self._scalar(node, wanted, path)

    def model(self, node: yaml.Node, model: type[Strict], path: Path) -> Any:
        if isinstance(node, yaml.ScalarNode) and node.value in model.shorthands and not is_quoted(node):
            return self.validated(model, dict(model.shorthands[node.value]), path)
        values = self.fields(node, model, path)
        return values if values is WRONG else self.validated(model, values, path)

    def fields(self, node: yaml.Node, model: type[Strict], path: Path) -> Any:
        """The fields of `model` that stand in a mapping, each read by its own type."""
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, f"must be a mapping{_fields_hint(model)}", path)
        values: dict[str, Any] = {}
        before = len(self.problems.found)
        for key, key_node, value in pairs(node, path, self.problems):
            inner = (*path, key)
            self.lines.setdefault(inner, line_of(key_node))
            known = model.model_fields.get(key)
            if known is None:
                self.add(f"unknown field{nearest(key, model.model_fields)}", inner)
                continue
            values[key] = self.read(value, known.annotation, inner)
        return values if len(self.problems.found) == before else WRONG

    def validated(self, model: type[Strict], values: Mapping[str, Any], path: Path) -> Any:
        try:
            return model.model_validate(values)
        except ValidationError as error:
            for problem in error.errors(include_url=False, include_context=False, include_input=False):
                where = (*path, *(part for part in problem["loc"] if isinstance(part, str | int)))
                self.add(_said(problem["type"], problem["msg"]), where)
            return WRONG

    def _optional(self, node: yaml.Node, wanted: Any, path: Path) -> Any:
        if isinstance(node, yaml.ScalarNode) and not is_quoted(node) and node.value in scalars.NULLS:
            return None
        inner = next(part for part in get_args(wanted) if part is not type(None))
        return self.read(node, inner, path)

    def _many(self, node: yaml.Node, kind: Any, wanted: Any, path: Path, *, single: bool) -> Any:
        if single and isinstance(node, yaml.ScalarNode):
            value = self.read(node, wanted, path)
            return value if value is WRONG else kind([value])
        if not isinstance(node, yaml.SequenceNode):
            return self._wrong(node, "must be a list", path)
        values = [self.read(item, wanted, (*path, index)) for index, item in enumerate(node.value)]
        if any(value is WRONG for value in values):
            return WRONG
        if isinstance(wanted, type) and issubclass(wanted, str):
            for index, value in enumerate(values):
                if value in values[:index]:
                    self.add(f"{value} is in the list twice", (*path, index))
        return kind(values)

    def _mapping(self, node: yaml.Node, key_type: Any, wanted: Any, path: Path) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, "must be a mapping", path)
        values: dict[Any, Any] = {}
        wrong = False
        for key, key_node, value in pairs(node, path, self.problems):
            self.lines.setdefault((*path, key), line_of(key_node))
            name = self.read(key_node, key_type, (*path, key))
            values[name] = self.read(value, wanted, (*path, key))
            wrong |= name is WRONG or values[name] is WRONG
        return WRONG if wrong else values

    def _anything(self, node: yaml.Node, path: Path) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, str, Any, path)
        if isinstance(node, yaml.SequenceNode):
            values = [self.read(item, Any, (*path, index)) for index, item in enumerate(node.value)]
            return WRONG if any(value is WRONG for value in values) else values
        return self._scalar(node, Any, path)

    def _scalar(self, node: yaml.Node, wanted: Any, path: Path) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return self._wrong(node, "must be a single value", path)
        raw, quoted = str(node.value), is_quoted(node)
        if not quoted and raw in scalars.NULLS and wanted is not Any:
            return self._wrong(node, "must have a value", path)
        if "${" in raw:
            return self._wrong(
                node, "the catalog knows no ${...} placeholders: name a credential id, or write the value", path
            )
        try:
            return _converted(raw, wanted, quoted=quoted)
        except ScalarError as error:
            return self._wrong(node, str(error), path)

    def _wrong(self, node: yaml.Node, message: str, path: Path) -> _Wrong:
        self.problems.add(message, line_of(node), path)
        return WRONG


def _converted(raw: str, wanted: Any, *, quoted: bool) -> Any:
    if wanted is Any:
        return scalars.read_anything(raw, quoted=quoted)
    if wanted is bool:
        return scalars.read_flag(raw, quoted=quoted)
    if wanted is int:
        return scalars.read_whole(raw, quoted=quoted)
    if wanted in (float, Decimal):
        return wanted(scalars.read_number(raw, quoted=quoted))
    if wanted is date:
        return scalars.read_date(raw)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return _member(raw, wanted)
    if get_origin(wanted) is Literal:
        return _chosen(raw, {str(choice): choice for choice in get_args(wanted)})
    return scalars.read_text(raw, quoted=quoted)


def _member(raw: str, wanted: type[Enum]) -> Enum:
    by_value = issubclass(wanted, str)
    chosen: Enum = _chosen(raw, {str(each.value if by_value else each.name): each for each in wanted})
    return chosen


def _chosen(raw: str, choices: Mapping[str, Any]) -> Any:
    if raw not in choices:
        raise ScalarError(f"must be one of {', '.join(choices)}, not {scalars.shown(raw)}{nearest(raw, choices)}")
    return choices[raw]


def _fields_hint(model: type[Strict]) -> str:
    names = list(model.model_fields)
    return f" of {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}"


def _said(kind: str, message: str) -> str:
    if kind == "missing":
        return "is missing"
    return message.removeprefix("Value error, ").replace("Input should be", "must be")
