"""Every wire, made from the provider's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from .routing import Wires
from .wires import anthropic_reading, openai_reading
from .wires.anthropic import AnthropicWire
from .wires.converse import ConverseWire
from .wires.converse_reading import ConverseReader
from .wires.decisions import OpenRouterWire, SystemOneWire
from .wires.decisions_openai import OpenAIDecisionsWire
from .wires.embeddings import OpenAIEmbeddingsWire
from .wires.embeddings_bedrock import CohereWire, TitanWire
from .wires.embeddings_gemini import GeminiEmbeddingsWire
from .wires.gemini import GeminiWire
from .wires.gemini_reading import GeminiReader
from .wires.invoke import InvokeWire
from .wires.mantle import MantleWire
from .wires.openai_chat import OpenAIChatWire
from .wires.responses import ResponsesWire
from .wires.responses_reading import ResponsesReader


def wires(
    *,
    seed: int,
    wall: Callable[[], datetime],
    anthropic_refuses: frozenset[str],
    openai_refuses: frozenset[str],
    strict_schemas: bool,
    automatic_caching: bool,
    burndown: float,
    sharing: frozenset[str],
    shared_only: frozenset[str],
    decision_decimals: int | None,
    count: Callable[[str], int],
) -> Wires:
    messages = anthropic_reading.Reader(refused_parameters=anthropic_refuses, seed=seed, strict_schemas=strict_schemas)
    on_bedrock = replace(messages, refused_parameters=frozenset())  # where older models are served, sampling is taken
    chat = openai_reading.Reader(refused_parameters=openai_refuses, strict_schemas=strict_schemas)
    responses = ResponsesReader(
        refused_parameters=openai_refuses, seed=seed, strict_schemas=strict_schemas, caches=automatic_caching
    )
    anthropic = AnthropicWire(messages, wall)
    invoke = InvokeWire(on_bedrock, burndown, anthropic)
    return Wires(
        anthropic=anthropic,
        mantle=MantleWire(messages, wall, sharing=sharing, shared_only=shared_only),
        chat=OpenAIChatWire(chat),
        responses=ResponsesWire(responses),
        converse=ConverseWire(ConverseReader(model=on_bedrock), burndown, invoke.read),
        invoke=invoke,
        gemini=GeminiWire(GeminiReader(seed=seed, caches=automatic_caching)),
        systemone=SystemOneWire(seed=seed, decimals=decision_decimals),
        openrouter=OpenRouterWire(seed=seed, decimals=decision_decimals),
        decisions=OpenAIDecisionsWire(seed=seed, decimals=decision_decimals),
        embeddings=OpenAIEmbeddingsWire(seed=seed, count=count),
        titan=TitanWire(seed=seed, count=count),
        cohere=CohereWire(seed=seed, count=count),
        gemini_embeddings=GeminiEmbeddingsWire(seed=seed, count=count),
    )
