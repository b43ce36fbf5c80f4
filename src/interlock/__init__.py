"""Interlock reserves model calls before it sends them.

    catalog/       which models exist: entries, limits, prices, grades, the picker
    credentials/   where secrets come from
    admission/     accounts, the line, the throttle: who may go, and when
    clients/       chat: conversation, response, the client template, one file a provider, the simulated provider
    embeddings/    text to vectors of one width
    decisions/     typed questions answered with probabilities
    runtime/       jobs, pipelines, records, the command line
    errors         every error, in one tree

A name is imported from here on first use, so `import interlock` loads neither an SDK nor a database driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlock.catalog.catalog import (
        Catalog as Catalog,
    )
    from interlock.catalog.entry import (
        ModelEntry as ModelEntry,
    )
    from interlock.catalog.spec import (
        ModelBinding as ModelBinding,
        ModelSpec as ModelSpec,
    )
    from interlock.catalog.usage import (
        Usage as Usage,
    )
    from interlock.catalog.words import (
        Depth as Depth,
        Grade as Grade,
        Input as Input,
        OutputSize as OutputSize,
    )
    from interlock.clients.client import (
        LLMClient as LLMClient,
    )
    from interlock.clients.conversation import (
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
    from interlock.clients.options import (
        CallOptions as CallOptions,
        StreamingMode as StreamingMode,
        Tool as Tool,
    )
    from interlock.clients.response import (
        LLMResponse as LLMResponse,
        StopReason as StopReason,
    )
    from interlock.decisions.client import (
        DecisionClient as DecisionClient,
    )
    from interlock.decisions.questions import (
        Choice as Choice,
        Noul as Noul,
        Score as Score,
    )
    from interlock.decisions.request import (
        DecisionRequest as DecisionRequest,
    )
    from interlock.decisions.response import (
        DecisionResponse as DecisionResponse,
    )
    from interlock.embeddings.client import (
        EmbeddingsClient as EmbeddingsClient,
    )
    from interlock.embeddings.purpose import (
        EmbeddingPurpose as EmbeddingPurpose,
    )
    from interlock.embeddings.response import (
        EmbeddingsResponse as EmbeddingsResponse,
    )
    from interlock.errors import (
        AdmissionError as AdmissionError,
        AdmissionTimeoutError as AdmissionTimeoutError,
        AmbiguousStepError as AmbiguousStepError,
        CatalogError as CatalogError,
        ConfigurationError as ConfigurationError,
        ContextWindowExceededError as ContextWindowExceededError,
        CredentialError as CredentialError,
        DependencyFailedError as DependencyFailedError,
        EmptyResponseError as EmptyResponseError,
        InterlockError as InterlockError,
        InvalidRequestError as InvalidRequestError,
        JobCancelledError as JobCancelledError,
        JobDeadlockError as JobDeadlockError,
        JobTimeoutError as JobTimeoutError,
        LeaseLostError as LeaseLostError,
        MalformedResponseError as MalformedResponseError,
        ModelResolutionError as ModelResolutionError,
        NeverFitsError as NeverFitsError,
        OutputTruncatedError as OutputTruncatedError,
        OverloadedError as OverloadedError,
        ProviderRefusalError as ProviderRefusalError,
        QuotaExhaustedError as QuotaExhaustedError,
        RateLimitedError as RateLimitedError,
        ReplayMismatchError as ReplayMismatchError,
        ResponseShapeError as ResponseShapeError,
        SimulationError as SimulationError,
        SpendCapExceededError as SpendCapExceededError,
        StoreError as StoreError,
        StreamBufferError as StreamBufferError,
        StreamInterruptedError as StreamInterruptedError,
        TransactionOpenError as TransactionOpenError,
        TransientUpstreamError as TransientUpstreamError,
        UndeclaredResourceError as UndeclaredResourceError,
        UnpricedModelError as UnpricedModelError,
        UpstreamError as UpstreamError,
    )
    from interlock.runtime import (
        DatabaseProvider as DatabaseProvider,
        DecisionCall as DecisionCall,
        EmbeddingCall as EmbeddingCall,
        Job as Job,
        JobHandle as JobHandle,
        JobRequirements as JobRequirements,
        JobResources as JobResources,
        LLMCall as LLMCall,
        ModelSettings as ModelSettings,
        PipelineContext as PipelineContext,
        Runtime as Runtime,
        RuntimeSettings as RuntimeSettings,
        pipeline as pipeline,
        run as run,
    )

__version__ = "0.1.0"

#: Where each public name lives. A type checker reads the imports above; a test holds the two equal.
_PLACES = {
    "interlock.catalog.catalog": "Catalog",
    "interlock.catalog.entry": "ModelEntry",
    "interlock.catalog.spec": "ModelBinding ModelSpec",
    "interlock.catalog.usage": "Usage",
    "interlock.catalog.words": "Depth Grade Input OutputSize",
    "interlock.clients.client": "LLMClient",
    "interlock.clients.conversation": (
        "Conversation DocumentBlock ImageBlock Message ServerToolBlock TextBlock ThinkingBlock ToolResultBlock "
        "ToolUseBlock"
    ),
    "interlock.clients.options": "CallOptions StreamingMode Tool",
    "interlock.clients.response": "LLMResponse StopReason",
    "interlock.decisions.client": "DecisionClient",
    "interlock.decisions.questions": "Choice Noul Score",
    "interlock.decisions.request": "DecisionRequest",
    "interlock.decisions.response": "DecisionResponse",
    "interlock.embeddings.client": "EmbeddingsClient",
    "interlock.embeddings.purpose": "EmbeddingPurpose",
    "interlock.embeddings.response": "EmbeddingsResponse",
    "interlock.errors": (
        "AdmissionError AdmissionTimeoutError AmbiguousStepError CatalogError ConfigurationError "
        "ContextWindowExceededError CredentialError DependencyFailedError EmptyResponseError InterlockError "
        "InvalidRequestError JobCancelledError JobDeadlockError JobTimeoutError LeaseLostError "
        "MalformedResponseError ModelResolutionError NeverFitsError OutputTruncatedError OverloadedError "
        "ProviderRefusalError QuotaExhaustedError RateLimitedError ReplayMismatchError ResponseShapeError "
        "SimulationError SpendCapExceededError StoreError StreamBufferError StreamInterruptedError "
        "TransactionOpenError TransientUpstreamError UndeclaredResourceError UnpricedModelError "
        "UpstreamError"
    ),
    "interlock.runtime": (
        "DatabaseProvider DecisionCall EmbeddingCall Job JobHandle JobRequirements JobResources LLMCall "
        "ModelSettings PipelineContext Runtime RuntimeSettings pipeline run"
    ),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names.split()}

__all__ = [
    "AdmissionError",
    "AdmissionTimeoutError",
    "AmbiguousStepError",
    "CallOptions",
    "Catalog",
    "CatalogError",
    "Choice",
    "ConfigurationError",
    "ContextWindowExceededError",
    "Conversation",
    "CredentialError",
    "DatabaseProvider",
    "DecisionCall",
    "DecisionClient",
    "DecisionRequest",
    "DecisionResponse",
    "DependencyFailedError",
    "Depth",
    "DocumentBlock",
    "EmbeddingCall",
    "EmbeddingPurpose",
    "EmbeddingsClient",
    "EmbeddingsResponse",
    "EmptyResponseError",
    "Grade",
    "ImageBlock",
    "Input",
    "InterlockError",
    "InvalidRequestError",
    "Job",
    "JobCancelledError",
    "JobDeadlockError",
    "JobHandle",
    "JobRequirements",
    "JobResources",
    "JobTimeoutError",
    "LLMCall",
    "LLMClient",
    "LLMResponse",
    "LeaseLostError",
    "MalformedResponseError",
    "Message",
    "ModelBinding",
    "ModelEntry",
    "ModelResolutionError",
    "ModelSettings",
    "ModelSpec",
    "NeverFitsError",
    "Noul",
    "OutputSize",
    "OutputTruncatedError",
    "OverloadedError",
    "PipelineContext",
    "ProviderRefusalError",
    "QuotaExhaustedError",
    "RateLimitedError",
    "ReplayMismatchError",
    "ResponseShapeError",
    "Runtime",
    "RuntimeSettings",
    "Score",
    "ServerToolBlock",
    "SimulationError",
    "SpendCapExceededError",
    "StopReason",
    "StoreError",
    "StreamBufferError",
    "StreamInterruptedError",
    "StreamingMode",
    "TextBlock",
    "ThinkingBlock",
    "Tool",
    "ToolResultBlock",
    "ToolUseBlock",
    "TransactionOpenError",
    "TransientUpstreamError",
    "UndeclaredResourceError",
    "UnpricedModelError",
    "UpstreamError",
    "Usage",
    "__version__",
    "pipeline",
    "run",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value  # found once, then an ordinary attribute
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
