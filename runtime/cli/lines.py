"""The input of `interlock run`: one JSON value a line, each with an id, checked as a whole before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from interlock.errors import ConfigurationError

MOST_NAMED = 5  # bad lines named in one error
Id = str | int


@dataclass(frozen=True, slots=True)
class Line:
    """One line: `number` counts from 1, `id` is its own or its number, `value` what it says."""

    number: int
    id: Id
    value: Any

    @property
    def digest(self) -> str | None:
        """What tells this line from another one of the same number; None where it has an id of its own."""
        if isinstance(self.value, dict) and self.value.get("id") is not None:
            return None
        return sha256(json.dumps(self.value, sort_keys=True).encode("utf-8", "backslashreplace")).hexdigest()[:16]


class BadLineError(ConfigurationError):
    """A line that cannot be run. `number` is its place in the file, `reason` what is wrong with it."""

    code = "bad_line"

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}")
        self.number, self.reason = number, reason


@dataclass(slots=True)
class Checked:
    """What the first reading found: how many lines can be run, what is wrong with the others, which ids there are."""

    good: int = 0
    bad: dict[int, str] = field(default_factory=dict)
    ids: dict[Id, str | None] = field(default_factory=dict)  # with the line's digest


def read_lines(path: Path) -> Iterator[Line | BadLineError]:
    """The lines in order, blank ones left out. A line that is not JSON comes as its error."""
    for number, raw in raw_lines(path):
        try:
            yield parse(number, raw)
        except BadLineError as error:
            yield error


def parse(number: int, raw: bytes) -> Line:
    value = value_of(number, raw)
    return Line(number, _id_of(number, value), value)


def value_of(number: int, raw: bytes) -> Any:
    """What a line says. BadLineError where that is not JSON."""
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError:
        raise BadLineError(number, "not UTF-8 text") from None
    except ValueError as error:
        raise BadLineError(number, f"not JSON ({getattr(error, 'msg', error)})") from None
    except RecursionError:
        raise BadLineError(number, "nested too deeply") from None


def check(path: Path, fits: Callable[[Line], object]) -> Checked:
    """Read the whole input once. `fits` raises BadLineError for a line the pipeline cannot take."""
    checked = Checked()
    seen: dict[Id, int] = {}
    for line in read_lines(path):
        if isinstance(line, BadLineError):
            checked.bad[line.number] = line.reason
            continue
        if line.id in seen:
            checked.bad[line.number] = f"has the id {line.id!r} of line {seen[line.id]}"
            continue
        seen[line.id] = line.number
        checked.ids[line.id] = line.digest
        try:
            fits(line)
        except BadLineError as error:
            checked.bad[line.number] = error.reason
        else:
            checked.good += 1
    for number in list(checked.bad):  # bad lines are told under this name, and no good one may have it too
        taken = seen.get(f"line {number}")
        if taken is not None and taken not in checked.bad:
            checked.bad[taken] = f"has the id 'line {number}', which names the bad line {number}"
            checked.good -= 1
    return checked


def check_same_input(path: Path, output: Path, ids: Mapping[Id, str | None], done: Mapping[Id, str | None]) -> None:
    """Whether earlier results can be those of this input. Raises ConfigurationError where they are another's."""
    strange = [name for name in done if name not in ids and not str(name).startswith("line ")]
    changed = [name for name, digest in done.items() if digest is not None and ids.get(name, digest) != digest]
    if not strange and not changed:
        return
    first = f"no line has the id {strange[0]!r}" if strange else f"line {changed[0]} has changed since"
    raise ConfigurationError(
        f"{output} holds {len(strange) + len(changed)} results that are not of {path} ({first}): go on with the input "
        "they were made from, choose another output, or --overwrite"
    )


def complain(path: Path, bad: Mapping[int, str]) -> NoReturn:
    """One error that names the bad lines by their numbers."""
    named = "; ".join(f"line {number}: {reason}" for number, reason in list(bad.items())[:MOST_NAMED])
    more = f"; and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
    raise ConfigurationError(
        f"{path}: {named}{more}. Nothing was run: mend the input, or leave bad lines out with --skip-bad"
    )


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number, line) of those that are not blank. ConfigurationError for a file that cannot be read."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ConfigurationError(f"{path} is a pipe or a device, and the input is read more than once: name a file")
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if raw.strip():
                    yield number, raw
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None


def _id_of(number: int, value: Any) -> Id:
    found = value.get("id") if isinstance(value, dict) else None
    if found is None:
        return number
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise BadLineError(number, "its id is neither text nor a whole number")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"{digits[:20]} is too large a number")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
