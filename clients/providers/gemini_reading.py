"""Reading Gemini's generateContent, whole and in chunks, which have the same form. Pure.

A chunk's parts have no index: unsigned texts in a row are one block, and a part with a signature is a block of its own,
because the signature must go back on exactly what it came with. A signature on nothing (an empty text) is a thinking
block without text. What is neither text nor a call of the caller's is kept as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..answer import Draft
from ..listing import ListedModel, items_of, text_of, tokens_of
from ..response import Piece, StopReason

STOP_REASONS: Mapping[str, StopReason] = {
    "STOP": StopReason.END_TURN,
    "MAX_TOKENS": StopReason.MAX_TOKENS,
    "CONTINUATION": StopReason.MAX_TOKENS,
}
#: Reasons for which there is no answer, and will be none however often it is asked.
REFUSALS = frozenset({
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "ESCALATION", "MODEL_ARMOR",
    "PUP_LIMITED_DISABLED", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
})  # fmt: skip
#: Reasons that say that the model slipped: another try may do better.
SLIPS = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"})

#: Names of models that answer generateContent and do not converse in text.
_NOT_CHAT = re.compile(r"-(tts|image|live|native-audio|embedding)(-|$)")

#: Members of a part that say something of what it holds.
_BESIDE = frozenset({"partMetadata", "videoMetadata", "mediaResolution"})

_UNSPECIFIED = ("FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED", None, "")


def read_chunk(chunk: Any, draft: Draft, slipped: Callable[[str, Draft], Exception]) -> Sequence[Piece]:
    """One chunk or a whole body. `slipped` makes the error of an answer that the model spoiled."""
    draft.served_model = _known_text(chunk.get("modelVersion")) or draft.served_model
    draft.request_id = draft.request_id or _known_text(chunk.get("responseId"))
    _count(chunk.get("usageMetadata"), draft)
    feedback = chunk.get("promptFeedback")
    if isinstance(feedback, dict) and feedback.get("blockReason") not in _UNSPECIFIED:
        draft.refuse(str(feedback["blockReason"]).lower(), feedback.get("blockReasonMessage"))
        draft.complete = True
    pieces: list[Piece] = []
    for candidate in chunk.get("candidates") or ():
        if candidate.get("index") in (0, None):
            content = candidate.get("content") or {}
            pieces += [piece for part in content.get("parts") or () for piece in _part(part, draft)]
            _finish(candidate, draft, slipped)
    return pieces


def _part(part: Any, draft: Draft) -> Sequence[Piece]:
    signature, text = part.get("thoughtSignature"), part.get("text")
    signed = isinstance(signature, str) and bool(signature)
    piece: Piece | None = None
    if isinstance(part.get("functionCall"), dict):
        key = _key("tool", draft, alone=True)
        call = part["functionCall"]
        draft.tool(key, id=call.get("id"), name=call.get("name"))
        if call.get("args") is not None:
            piece = draft.tool_json(key, json.dumps(call["args"], ensure_ascii=False))
        draft.sign(key, signature)
    elif isinstance(text, str) and (text or signed):  # the last chunk of a stream says nothing, and is no block
        thought = bool(part.get("thought")) or (signed and not text)
        key = _key("thinking" if thought else "text", draft, alone=signed)
        piece = draft.thinking(key, text) if thought else draft.text(key, text)
        draft.sign(key, signature)
    elif text is None and (kind := _kind(part)):  # of a tool that the provider runs itself
        draft.server_tool(_key("own", draft, alone=True), kind, part)
    return () if piece is None else (piece,)


def _kind(part: Any) -> str | None:
    """What a part that is neither text nor a call holds: `executableCode`, `codeExecutionResult`, `toolCall`, ..."""
    return next((name for name, value in part.items() if isinstance(value, dict) and name not in _BESIDE), None)


def _key(kind: str, draft: Draft, *, alone: bool) -> tuple[str, int]:
    """The block that a part belongs to: the one before it where both are of one kind and neither stands alone."""
    last, shared = draft.notes.get("last", (("", -1), False))
    key = last if shared and not alone and last[0] == kind else (kind, last[1] + 1)
    draft.notes["last"] = (key, not alone)
    return key


def _finish(candidate: Any, draft: Draft, slipped: Callable[[str, Draft], Exception]) -> None:
    reason = candidate.get("finishReason")
    if reason in _UNSPECIFIED:
        return
    if reason in SLIPS or reason == "MISSING_THOUGHT_SIGNATURE":
        raise slipped(reason, draft)
    draft.complete = True
    if reason in REFUSALS:
        draft.refuse(reason.lower(), candidate.get("finishMessage"))
    elif draft.stop_reason is not StopReason.REFUSAL:
        stop = STOP_REASONS.get(reason, StopReason.END_TURN) if isinstance(reason, str) else StopReason.END_TURN
        draft.stop(StopReason.TOOL_USE if stop is StopReason.END_TURN and draft.calls_tools else stop)


def _count(usage: Any, draft: Draft) -> None:
    """The prompt includes what the cache gave; thoughts stand beside the candidates and are output like them. Counts of
    zero are left out of the JSON, so what is not there follows from the total."""
    if not isinstance(usage, dict):
        return
    prompt, used, cached, total = (
        _number(usage.get(name))
        for name in ("promptTokenCount", "toolUsePromptTokenCount", "cachedContentTokenCount", "totalTokenCount")
    )
    wrote, thought = _number(usage.get("candidatesTokenCount")), _number(usage.get("thoughtsTokenCount"))
    given = None if prompt is None else prompt + (used or 0)
    output = None if wrote is None and thought is None else (wrote or 0) + (thought or 0)
    if output is None and given is not None and total is not None:
        output = max(total - given, 0)
    draft.count(
        input_tokens=None if given is None else max(given - (cached or 0), 0),
        output_tokens=output,
        cache_read_tokens=cached,
        reasoning_tokens=thought,
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _known_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def listed_in(page: Mapping[str, Any], key: str) -> list[ListedModel]:
    """The models of a page of the list. Vertex AI tells names alone."""
    return [_listed(item) for item in items_of(page, key)]


def _listed(item: Mapping[str, Any]) -> ListedModel:
    name = str(item["name"])
    short, methods = name.rpartition("/")[2], item.get("supportedGenerationMethods")
    told = "generateContent" in methods if isinstance(methods, list) else short.startswith(("gemini", "gemma"))
    return ListedModel(
        wire_model_id=short,
        name=text_of(item.get("displayName")),
        also=frozenset({name}),
        context_window=tokens_of(item.get("inputTokenLimit")),
        max_output_tokens=tokens_of(item.get("outputTokenLimit")),
        chat=told and _NOT_CHAT.search(short) is None,
    )
