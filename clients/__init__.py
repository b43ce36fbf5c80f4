"""Chat: what is said, what is answered, and the one path a call takes.

    conversation   Conversation, Message and the blocks
    response       LLMResponse, StopReason, Piece
    options        CallOptions, Tool: what stands beside the conversation
    client         LLMClient: what a job is given
    abstract       AbstractLLMClient: the template a provider fills in
    bound          BoundLLMClient: the template on one job's reservation
    stream         ResponseStream: a streamed answer that owns its connection
    turns          a conversation made ready for a wire, or refused; shapes: whether it is what it says it is
    asking, schema what is asked: options, the way to a typed answer, schemas in a provider's dialect
    answer, gates  what came back, read piece by piece, and what stands between it and the caller
    structured, extract   typed answers: strict parsing, the words of a correction
    lifecycle      CallAttempt: permit, sent, outcome, close, record; exactly once (embeddings and decisions use it too)
    delivery       the two ends of a call: the permit is drawn, the answer settled and given out
    exchange       one request and its answer, for clients that do not stream
    watch          the two clocks of an attempt: its whole time, and silence
    first_byte     when a request begins to leave
    breaker        whether calls should go to a model now, or to a backup (pure)
    partial        a typed answer while it streams
    outcomes       what an error means to admission and to the record
    failures, hints  how providers say no, and what their headers say of time and limits
    measure        how large a call is, estimated
    writing        what is put on a wire: JSON text, an address, or a refusal by name
    listing        what a provider says it serves
    environment    ClientEnvironment: what every client is built with
    record         CallRecord, CallSeat: what the template needs from whoever reserved
    registry       provider class by key, through entry points
    providers/     one file a provider
    simulator/     SimulatedProvider: a loopback provider with limits that bind

`runtime`, `embeddings` and `decisions` import it; it imports `admission`, `catalog` and `credentials`. No provider SDK
is imported before a provider's first call.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .abstract import AbstractLLMClient as AbstractLLMClient, Reply as Reply, WireStream as WireStream
    from .answer import Answer as Answer, Draft as Draft
    from .asking import Ask as Ask, Structure as Structure
    from .bound import BoundLLMClient as BoundLLMClient
    from .client import LLMClient as LLMClient
    from .conversation import (
        Block as Block,
        Conversation as Conversation,
        DocumentBlock as DocumentBlock,
        ImageBlock as ImageBlock,
        Message as Message,
        ServerToolBlock as ServerToolBlock,
        TextBlock as TextBlock,
        ThinkingBlock as ThinkingBlock,
        ToolResultBlock as ToolResultBlock,
        ToolUseBlock as ToolUseBlock,
    )
    from .environment import ClientEnvironment as ClientEnvironment
    from .lifecycle import CallAttempt as CallAttempt, Ending as Ending
    from .options import CallOptions as CallOptions, StreamingMode as StreamingMode, Tool as Tool
    from .outcomes import outcome_of as outcome_of
    from .record import CallRecord as CallRecord, CallSeat as CallSeat
    from .registry import provider_class as provider_class, provider_keys as provider_keys
    from .response import (
        LLMResponse as LLMResponse,
        Piece as Piece,
        PieceKind as PieceKind,
        StopReason as StopReason,
    )
    from .stream import ResponseStream as ResponseStream
    from .structured import Shape as Shape

_HOMES = {
    "AbstractLLMClient": ".abstract",
    "Answer": ".answer",
    "Ask": ".asking",
    "Block": ".conversation",
    "BoundLLMClient": ".bound",
    "CallAttempt": ".lifecycle",
    "CallOptions": ".options",
    "CallRecord": ".record",
    "CallSeat": ".record",
    "ClientEnvironment": ".environment",
    "Conversation": ".conversation",
    "DocumentBlock": ".conversation",
    "Draft": ".answer",
    "Ending": ".lifecycle",
    "ImageBlock": ".conversation",
    "LLMClient": ".client",
    "LLMResponse": ".response",
    "Message": ".conversation",
    "Piece": ".response",
    "PieceKind": ".response",
    "Reply": ".abstract",
    "ResponseStream": ".stream",
    "ServerToolBlock": ".conversation",
    "Shape": ".structured",
    "StopReason": ".response",
    "StreamingMode": ".options",
    "Structure": ".asking",
    "TextBlock": ".conversation",
    "ThinkingBlock": ".conversation",
    "Tool": ".options",
    "ToolResultBlock": ".conversation",
    "ToolUseBlock": ".conversation",
    "WireStream": ".abstract",
    "outcome_of": ".outcomes",
    "provider_class": ".registry",
    "provider_keys": ".registry",
}

__all__ = [
    "AbstractLLMClient",
    "Answer",
    "Ask",
    "Block",
    "BoundLLMClient",
    "CallAttempt",
    "CallOptions",
    "CallRecord",
    "CallSeat",
    "ClientEnvironment",
    "Conversation",
    "DocumentBlock",
    "Draft",
    "Ending",
    "ImageBlock",
    "LLMClient",
    "LLMResponse",
    "Message",
    "Piece",
    "PieceKind",
    "Reply",
    "ResponseStream",
    "ServerToolBlock",
    "Shape",
    "StopReason",
    "StreamingMode",
    "Structure",
    "TextBlock",
    "ThinkingBlock",
    "Tool",
    "ToolResultBlock",
    "ToolUseBlock",
    "WireStream",
    "outcome_of",
    "provider_class",
    "provider_keys",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
