"""`import interlock` is light, every public name resolves, and the type checker's view is the run time's view."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import interlock

SOURCE = Path(__file__).parent.parent / "src" / "interlock" / "__init__.py"
NAMES = sorted(set(interlock.__all__) - {"__version__"})
#: What users may rely on. Add to it; never take from it.
PROMISED = [
    "Runtime",
    "RuntimeSettings",
    "ModelSettings",
    "Job",
    "JobHandle",
    "JobRequirements",
    "JobResources",
    "LLMCall",
    "EmbeddingCall",
    "DecisionCall",
    "pipeline",
    "PipelineContext",
    "run",
    "Conversation",
    "Message",
    "TextBlock",
    "ImageBlock",
    "DocumentBlock",
    "ToolUseBlock",
    "ToolResultBlock",
    "ThinkingBlock",
    "ServerToolBlock",
    "LLMClient",
    "LLMResponse",
    "StopReason",
    "Usage",
    "Grade",
    "Depth",
    "OutputSize",
    "Input",
    "ModelSpec",
    "ModelBinding",
    "ModelEntry",
    "Catalog",
    "EmbeddingsClient",
    "EmbeddingPurpose",
    "EmbeddingsResponse",
    "DecisionClient",
    "DecisionRequest",
    "DecisionResponse",
    "Choice",
    "Noul",
    "Score",
    "DatabaseProvider",
    "InterlockError",
    "AdmissionError",
    "NeverFitsError",
    "AdmissionTimeoutError",
    "SpendCapExceededError",
    "UpstreamError",
    "RateLimitedError",
    "OverloadedError",
    "TransientUpstreamError",
    "QuotaExhaustedError",
    "ProviderRefusalError",
    "OutputTruncatedError",
    "ContextWindowExceededError",
    "ResponseShapeError",
    "StreamInterruptedError",
    "CredentialError",
    "InvalidRequestError",
    "MalformedResponseError",
    "StreamBufferError",
    "UnpricedModelError",
    "TransactionOpenError",
    "AmbiguousStepError",
    "LeaseLostError",
    "JobCancelledError",
    "JobTimeoutError",
    "JobDeadlockError",
    "ReplayMismatchError",
    "CatalogError",
    "ModelResolutionError",
]
PROMISED_BELOW = {
    "interlock.admission": "Admission Demand TokenBucketRateLimiter Throttle CountingGate DatabaseGate Reservation",
    "interlock.clients.simulator": "SimulatedProvider",
}
ALIASES = {
    "JobRequirements": ("requireModel",),
    "JobResources": ("getLLMClient", "getEmbeddingsClient", "getDecisionClient"),
    "LLMClient": ("singleResponse", "streamResponse", "getUpstreamRetries"),
    "LLMCall": ("getUpstreamRetries",),
}
HEAVY = {"anthropic", "openai", "sqlalchemy", "numpy", "httpx2", "starlette", "uvicorn", "wordllama", "sparrow_decider"}


def imports_for_type_checkers() -> dict[str, str]:
    block = next(node for node in ast.parse(SOURCE.read_text(encoding="utf-8")).body if isinstance(node, ast.If))
    lines = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in lines for alias in node.names}


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(interlock, name) is not None
    assert name in dir(interlock)


def test_everything_promised_is_there() -> None:
    assert set(PROMISED) - set(interlock.__all__) == set()
    for module, names in PROMISED_BELOW.items():
        assert [name for name in names.split() if not hasattr(import_module(module), name)] == []


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_the_other_spellings_work(name: str) -> None:
    assert [alias for alias in ALIASES[name] if not hasattr(getattr(interlock, name), alias)] == []


def test_both_tables_agree() -> None:
    assert imports_for_type_checkers() == {name: interlock._MODULE_OF[name] for name in NAMES}


def test_all_names_are_written_out_for_type_checkers() -> None:
    assert sorted(interlock.__all__) == sorted(["__version__", *interlock._MODULE_OF])


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Rntime'"):
        interlock.Rntime  # noqa: B018


def test_the_verbs_are_there() -> None:
    verbs = {
        "Runtime": "run submit enqueue llm embeddings decisions",
        "PipelineContext": "run submit enqueue gather map stream step now uuid random branch",
        "LLMClient": "single_response stream_response",
        "EmbeddingsClient": "embed embed_batch",
        "DecisionClient": "decide decide_batch",
    }
    lacking = [
        f"{name}.{verb}"
        for name, of in verbs.items()
        for verb in of.split()
        if not hasattr(getattr(interlock, name), verb)
    ]
    assert lacking == []


def test_the_import_loads_nothing_heavy() -> None:
    code = "import interlock, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & HEAVY == set()
