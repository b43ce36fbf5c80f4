"""A provider to test against: real HTTP on loopback, real limits, faults on demand. Public, for tests of one's own too.

    provider     SimulatedProvider: settings, script, log, the server's lifetime
    script       Step: what happens to a request instead of a plain answer
    answers      deterministic answers from a request's own text; filling, formats, numbers, patterns: values for a JSON
                 schema
    deciding     decisions worked out from a state and a question; embedding: vectors, from a text's words
    buckets      the limits, pure; counting: tokens of a text; caching: marked prefixes
    exchange     what passes between a wire and the provider
    app          the ASGI app; answering, replying: one request's way; framing: its events; connection, server, joining:
                 sockets
    wires/       Anthropic Messages, Mantle, OpenAI Responses and chat completions, Bedrock Converse and InvokeModel,
                 Gemini; embeddings of OpenAI, Titan, Cohere and Gemini; decisions of TypeSafe, OpenRouter and OpenAI;
                 routing, speaking: which path is which of them, and how they are made

Anyone may import it. Serving needs uvicorn (the `simulator` extra); the app alone needs nothing.
"""

from .answers import default_answer
from .buckets import PublishedLimits
from .exchange import Answer, Ask, AskedTool, Refusal, ToolCall
from .log import Goodput, SeenRequest
from .provider import SimulatedProvider
from .script import Framing, Step

__all__ = [
    "Answer",
    "Ask",
    "AskedTool",
    "Framing",
    "Goodput",
    "PublishedLimits",
    "Refusal",
    "SeenRequest",
    "SimulatedProvider",
    "Step",
    "ToolCall",
    "default_answer",
]
