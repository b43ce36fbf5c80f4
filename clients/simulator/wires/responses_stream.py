"""The events of one output item of a response, in order, without their sequence numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from .wire import pieces_of

_EMPTY: dict[str, dict[str, Any]] = {
    "reasoning": {"summary": []},
    "message": {"content": []},
    "function_call": {"arguments": ""},
}
Plain = tuple[Literal["start", "piece"], dict[str, Any]]


def item_events(index: int, item: dict[str, Any], pieces: tuple[str, ...]) -> Iterator[Plain]:
    """`pieces` is the text as it is to be cut, if it is."""
    begun = {**item, "status": "in_progress"} if "status" in item else dict(item)
    begun |= _EMPTY.get(item["type"], {})
    yield "start", {"type": "response.output_item.added", "output_index": index, "item": begun}
    where = {"item_id": item.get("id"), "output_index": index}
    if item["type"] == "reasoning":
        yield from _summary(where, item)
    elif item["type"] == "message":
        for position, part in enumerate(item["content"]):
            yield from _part(where | {"content_index": position}, part, pieces)
    elif item["type"] == "function_call":
        for piece in pieces_of(item["arguments"]):
            yield "piece", {"type": "response.function_call_arguments.delta", **where, "delta": piece}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield "start", {"type": "response.function_call_arguments.done", **where, **done}
    yield "start", {"type": "response.output_item.done", "output_index": index, "item": item}


def _summary(where: dict[str, Any], item: dict[str, Any]) -> Iterator[Plain]:
    name = "response.reasoning_summary"
    for position, part in enumerate(item["summary"]):
        at = where | {"summary_index": position}
        yield "start", {"type": f"{name}_part.added", **at, "part": {**part, "text": ""}}
        for piece in pieces_of(part["text"]):
            yield "piece", {"type": f"{name}_text.delta", **at, "delta": piece}
        yield "start", {"type": f"{name}_text.done", **at, "text": part["text"]}
        yield "start", {"type": f"{name}_part.done", **at, "part": part}


def _part(at: dict[str, Any], part: dict[str, Any], pieces: tuple[str, ...]) -> Iterator[Plain]:
    word = "text" if part["type"] == "output_text" else "refusal"
    name = "response.output_text" if word == "text" else "response.refusal"
    text = part[word]
    extra: dict[str, Any] = {"logprobs": part["logprobs"]} if word == "text" else {}
    yield "start", {"type": "response.content_part.added", **at, "part": {**part, word: ""}}
    left = list(extra.get("logprobs", ()))
    for piece in (pieces if word == "text" else ()) or pieces_of(text):
        own = {"logprobs": _taken(left, piece)} if word == "text" else {}
        yield "piece", {"type": f"{name}.delta", **at, "delta": piece, **own}
    yield "start", {"type": f"{name}.done", **at, word: text, **extra}
    yield "start", {"type": "response.content_part.done", **at, "part": part}


def _taken(left: list[Any], piece: str) -> list[Any]:
    """The tokens that begin within a piece, taken off those that are left."""
    taken: list[Any] = []
    size = 0
    while left and size < len(piece):
        taken.append(left.pop(0))
        size += len(taken[-1]["token"])
    return taken
