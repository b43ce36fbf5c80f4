"""What a catalog says of an account beside what the account's provider lists. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from interlock.catalog import ModelEntry
from interlock.catalog.words import Status
from interlock.clients.listing import ListedModel

from .asking import Answer, Said


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`here`: entries whose model is listed; `back`: of these, those that discover had marked. `gone`: open entries
    whose model is not listed. `new`: listed chat models that no entry calls; `not_chat`: how many others there are."""

    answer: Answer
    here: tuple[ModelEntry, ...] = ()
    back: tuple[ModelEntry, ...] = ()
    gone: tuple[ModelEntry, ...] = ()
    new: tuple[ListedModel, ...] = ()
    not_chat: int = 0


def compare(answers: Iterable[Answer], marked: Collection[str]) -> list[Difference]:
    """One for each answer. Where two keys speak to one account (`openai` and `openai-chat-completions`), a model that
    either has is not new to the other, and what both lack is new to the first that has entries."""
    ordered = sorted(answers, key=lambda answer: not answer.account.entries)
    known: dict[tuple[str, str | None], set[str]] = {}
    for answer in ordered:
        known.setdefault(_whose(answer), set()).update(_short(entry.wire_model_id) for entry in answer.account.entries)
    return [_difference(answer, marked, known[_whose(answer)]) for answer in ordered]


def _whose(answer: Answer) -> tuple[str, str | None]:
    return answer.host or answer.account.provider, answer.credential


def _difference(answer: Answer, marked: Collection[str], known: set[str]) -> Difference:
    if answer.said is not Said.LISTED or not answer.models:
        return Difference(answer=answer)  # an empty list is likelier a mistake than the end of every model
    listed = frozenset(name for model in answer.models for name in model.names)
    entries = answer.account.entries
    here = tuple(entry for entry in entries if _short(entry.wire_model_id) in listed)
    return Difference(
        answer=answer,
        here=here,
        back=tuple(entry for entry in here if entry.id in marked),
        gone=tuple(entry for entry in entries if entry not in here and entry.status is Status.OPEN and _is_told(entry)),
        new=_new(answer.models, known),
        not_chat=sum(not model.chat and not model.names & known for model in answer.models),
    )


def _new(models: Sequence[ListedModel], known: set[str]) -> tuple[ListedModel, ...]:
    """In the list's order; of a model and its dated snapshots the model alone."""
    fresh = set()
    for model in sorted(models, key=lambda model: len(model.wire_model_id)):
        if model.chat and not (model.names & known):
            known.add(model.wire_model_id)
            fresh.add(model.wire_model_id)
    return tuple({model.wire_model_id: model for model in models if model.wire_model_id in fresh}.values())


def _short(wire_model_id: str) -> str:
    """Without the path that Google's ids may have."""
    if wire_model_id.startswith(("models/", "publishers/")):
        return wire_model_id.rpartition("/")[2]
    return wire_model_id


def _is_told(entry: ModelEntry) -> bool:
    """Whether a list would have it: of what an account made for itself (an ARN, a tuned model) not every one has."""
    return not entry.wire_model_id.startswith(("arn:", "tunedModels/", "projects/"))
