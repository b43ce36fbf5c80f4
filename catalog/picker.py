"""From what is asked to the entry that serves it, and why the others were skipped.

A grade is served by its pins in their order, then by its other entries, cheapest first, then by the next grade up. An
exact id is served by that entry, or by the fallbacks it lists. What cannot be called is skipped and said once.

An entry may also be passed over for now (`PassedOver`: its provider fails, or is closed): then the fallbacks it lists
come next, whatever their grade, and theirs after them. A chain that comes back to a model that was looked at, under
whichever id, goes on to the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from interlock.errors import ContextWindowExceededError, ModelResolutionError

from .catalog import Catalog
from .entry import ModelEntry
from .limits import default_output_tokens, output_limit
from .spec import ModelBinding, ModelSpec
from .words import Grade, Input, Kind, Status

log = logging.getLogger("interlock.catalog")

SAME_MODEL = "it is the same model under another name"
TOO_SMALL = "its window is too small for this input"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The place to be filled: what is asked, and how large its input is (tokens)."""

    kind: Kind
    spec: ModelSpec
    input_tokens: int = 0


class Unable(str):
    """Why an entry cannot be called now, and what would help: "set ANTHROPIC_API_KEY"."""

    remedy: str

    def __new__(cls, reason: str, remedy: str = "") -> Self:
        self = super().__new__(cls, reason)
        self.remedy = remedy
        return self


class PassedOver(Unable):
    """Why an entry that can be called should not be, just now: its backups go first."""


def always_callable(entry: ModelEntry) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the picker may look at. `callable` answers why an entry cannot be called now (as `Unable`, where it knows
    what would help), or None.

    `said_once` remembers which skips were logged, so that a missing key is one line and not one a call.
    """

    catalog: Catalog
    callable: Callable[[ModelEntry], str | None] = always_callable
    said_once: set[tuple[str, str]] = field(default_factory=set)


class Picker(Protocol):
    """Chooses an entry. A deployment's own goes into `ModelSettings.picker`."""

    def pick(self, seat: Seat, situation: Situation) -> ModelEntry: ...


class DefaultPicker:
    """Pins, then the cheapest of the grade, then the next grade up."""

    def pick(self, seat: Seat, situation: Situation) -> ModelEntry:
        """Raises `ModelResolutionError`, or `ContextWindowExceededError` when only larger windows would help."""
        skipped: dict[str, str] = {}
        looked_at: set[tuple[str | None, ...]] = set()
        waiting = [self._candidates(seat, situation.catalog)]
        while waiting:
            entry = next(waiting[-1], None)
            if entry is None:
                waiting.pop()
                continue
            if entry.id in skipped:
                continue
            known = _on_the_wire(entry) in looked_at
            reason = PassedOver(SAME_MODEL) if known else _unfit(entry, seat) or situation.callable(entry)
            if reason is None:
                if entry.status is Status.DEPRECATED:
                    _say_deprecated(entry, situation)
                _say_skipped(skipped, situation, logging.WARNING)
                return entry
            skipped[entry.id] = reason
            if isinstance(reason, PassedOver):
                looked_at.add(_on_the_wire(entry))
            if isinstance(reason, PassedOver) or isinstance(seat.spec.model, str):
                waiting.append(map(situation.catalog.entry, entry.fallbacks))
        _say_skipped(skipped, situation, logging.INFO)  # the error says it
        raise _nothing_left(seat, skipped, situation.catalog)

    def _candidates(self, seat: Seat, catalog: Catalog) -> Iterator[ModelEntry]:
        asked = seat.spec.model
        if isinstance(asked, str):
            yield catalog.entry(asked)
        elif isinstance(asked, Grade):
            for grade in _grades(asked):
                yield from _pinned(grade, catalog)
                yield from catalog.by_price(seat.kind, grade)
        else:
            yield from _pinned(seat.kind.value, catalog)
            yield from catalog.by_price(seat.kind)


def bind(
    spec: ModelSpec,
    *,
    catalog: Catalog,
    picker: Picker,
    situation: Situation,
    input_tokens: int = 0,
    calls: int = 1,
) -> ModelBinding:
    """The entry for a spec with the numbers that are both reserved and sent."""
    entry: object = picker.pick(Seat(kind=spec.kind, spec=spec, input_tokens=input_tokens), situation)
    if not isinstance(entry, ModelEntry):
        raise ModelResolutionError(
            f"{type(picker).__name__}.pick gave {type(entry).__name__}, not an entry of the catalog: give one, or raise"
            " ModelResolutionError"
        )
    return sized(spec, entry, catalog=catalog, input_tokens=input_tokens, calls=calls)


def sized(
    spec: ModelSpec, entry: ModelEntry, *, catalog: Catalog, input_tokens: int = 0, calls: int = 1
) -> ModelBinding:
    """The same for an entry that has been picked. Raises ContextWindowExceededError."""
    if spec.kind is not Kind.CHAT:
        return ModelBinding(spec=spec, entry=entry, input_tokens=input_tokens, output_tokens=0, calls=calls)
    declared = spec.max_output_tokens
    if declared is None and spec.output is None:
        _, limits = catalog.limits_of(entry)
        reserved = entry.accounting.output == "limit"
        declared = default_output_tokens(limits, input_tokens=input_tokens, reserved=reserved)
    output_tokens, thinking_tokens = output_limit(
        entry, declared=declared, output=spec.output, depth=spec.depth, input_tokens=input_tokens
    )
    return ModelBinding(
        spec=spec,
        entry=entry,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        thinking_tokens=thinking_tokens,
        calls=calls,
    )


def _on_the_wire(entry: ModelEntry) -> tuple[str | None, ...]:
    """What two ids have in common when they are one model at one account of one provider."""
    return entry.provider, entry.base_url, entry.credential, entry.wire_model_id


def _grades(asked: Grade) -> list[Grade]:
    """The floor and what is above it, upwards; CEILING is its own pins, then the strongest downwards."""
    real = [grade for grade in Grade if grade is not Grade.CEILING]
    if asked is Grade.CEILING:
        return [Grade.CEILING, *reversed(real)]
    return [grade for grade in real if asked <= grade]


def _pinned(key: Grade | str, catalog: Catalog) -> Iterator[ModelEntry]:
    for name in catalog.pins.get(key, ()):
        yield catalog.entry(name)


def _unfit(entry: ModelEntry, seat: Seat) -> str | None:
    """Why an entry does not serve this seat, whatever can be called."""
    spec = seat.spec
    if entry.id in spec.avoid:
        return "the call asked to avoid it"
    if entry.kind is not seat.kind:
        return f"it is a model for {entry.kind.value}, and {seat.kind.value} is asked"
    # What is not listed may still answer whoever names it: a list is not always whole.
    unlisted = entry.status is Status.UNLISTED and not isinstance(spec.model, str)
    if unlisted or entry.status in (Status.DISABLED, Status.UNREACHABLE):
        return f"its status is {entry.status.value}"
    if missing := sorted(each.value for each in spec.sends - entry.inputs - {Input.TEXT}):
        return f"it takes no {' and no '.join(missing)}"
    # An exact id is asked for whatever its window; the output limit then says what does not fit.
    if (
        not isinstance(spec.model, str)
        and entry.context_window is not None
        and seat.input_tokens >= entry.context_window
    ):
        return TOO_SMALL
    return None


def _say_deprecated(entry: ModelEntry, situation: Situation) -> None:
    if (entry.id, "deprecated") not in situation.said_once:
        situation.said_once.add((entry.id, "deprecated"))
        log.warning("model %s is deprecated", entry.id)


def _say_skipped(skipped: Mapping[str, str], situation: Situation, level: int) -> None:
    """One record for all that is new, grouped by reason. `DEBUG` has a line for each model."""
    fresh = {
        name: reason
        for name, reason in skipped.items()
        if reason != TOO_SMALL and not isinstance(reason, PassedOver) and (name, reason) not in situation.said_once
    }
    if not fresh:
        return
    situation.said_once.update(fresh.items())
    log.log(level, "%s", _skips(fresh))
    if len(fresh) > 1:
        for name, reason in fresh.items():
            log.debug("model %s is skipped: %s", name, reason)


def _skips(skipped: Mapping[str, str]) -> str:
    if len(skipped) == 1:
        ((name, reason),) = skipped.items()
        return f"model {name} is skipped: {reason}"
    return f"{len(skipped)} models are skipped: {_grouped(skipped)}"


def _grouped(skipped: Mapping[str, str]) -> str:
    """`a, b and 3 more: their reason; c: its own`."""
    names: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        names.setdefault(reason, []).append(name)
    return "; ".join(f"{_named(each)}: {reason}" for reason, each in names.items())


def _named(names: list[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{', '.join(names[:2])} and {len(names) - 2} more"


def _nothing_left(seat: Seat, skipped: dict[str, str], catalog: Catalog) -> Exception:
    asked, kind = str(seat.spec), seat.kind.value
    if skipped and all(reason == TOO_SMALL for reason in skipped.values()):
        largest = max((catalog.entry(name).context_window or 0 for name in skipped), default=0)
        return ContextWindowExceededError(
            f"{asked}: about {seat.input_tokens:,} input tokens fit no window; the largest is {largest:,}",
            model=asked,
            sent=False,
        )
    if not skipped:
        return ModelResolutionError(f"{catalog.file} has no {kind} model for {asked}: {_instead(seat, catalog)}")
    remedies = list(dict.fromkeys(reason.remedy for reason in skipped.values() if isinstance(reason, Unable)))
    remedies = [remedy for remedy in remedies if remedy]
    if len(set(skipped.values())) > 2 and remedies:
        return ModelResolutionError(
            f"no {kind} model for {asked} can be called: {', or '.join(remedies)}, or name another catalog "
            "(--catalog FILE, RuntimeSettings(catalog=...)); `interlock catalog show` says why for each of its "
            f"{len(skipped)} models",
            skipped=skipped,
        )
    return ModelResolutionError(f"no {kind} model for {asked} can be called. {_grouped(skipped)}", skipped=skipped)


def _instead(seat: Seat, catalog: Catalog) -> str:
    """What to do where nothing in the catalog is of that kind, or of that grade or above."""
    entries = [entry for entry in catalog.entries.values() if entry.kind is seat.kind]
    grades = sorted({entry.grade for entry in entries if entry.grade is not None}, key=lambda grade: grade.value)
    if not entries:
        return f"add an entry of kind {seat.kind.value}, or name another catalog"
    if seat.kind is not Kind.CHAT or not grades:
        return f"pin one ({', '.join(entry.id for entry in entries[:3])}), or ask for it by its id"
    there = ", ".join(grade.name for grade in grades)
    return f"ask for a grade it has ({there}), give an entry this grade, or ask for one by its id"
