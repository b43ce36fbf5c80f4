"""Questions about a state, answered with probabilities.

    questions  Choice, Noul, Score: what is asked
    request    DecisionRequest: a state and its questions
    response   DecisionResponse and the answers
    client     DecisionClient: what a job is given to decide with; batch: many states, and what came of each
    splitting  which questions go into which request (pure); gathering: some work at a time
    kept       what parts of a decision were answered before another part of it failed
    formulas   confidence, recomputed from the probabilities (pure); temperature: how sure an answer is, corrected
    wire       the System One wire, written and read (pure); openai_wire: OpenAI's
    labels     a distribution from the probabilities of a chat model's next token (pure); prompting: what it is asked
    echo       keeps a provider's words out of errors where they repeat the state (pure)
    calibration the temperatures that were fitted, and their file; recorded: answers as JSON values
    abstract   AbstractDecisionClient: the template of every provider; http: of those over HTTP; bound: one job's client
    providers/ one file a provider, imported at its first call

`interlock.runtime` may import it; it builds on `clients`, `admission` and `catalog`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .batch import DecisionBatch, DecisionBatchError
from .calibration import Calibration
from .client import DecisionClient
from .questions import Choice, Noul, Option, Question, Score
from .request import DecisionRequest
from .response import Answer, ChoiceAnswer, DecisionResponse, NoulAnswer, ScoreAnswer

if TYPE_CHECKING:
    from .abstract import AbstractDecisionClient, DecisionAnswer
    from .http import HttpDecisionClient

__all__ = [
    "AbstractDecisionClient",
    "Answer",
    "Calibration",
    "Choice",
    "ChoiceAnswer",
    "DecisionAnswer",
    "DecisionBatch",
    "DecisionBatchError",
    "DecisionClient",
    "DecisionRequest",
    "DecisionResponse",
    "HttpDecisionClient",
    "Noul",
    "NoulAnswer",
    "Option",
    "Question",
    "Score",
    "ScoreAnswer",
]


def __getattr__(name: str) -> Any:
    if name in ("AbstractDecisionClient", "DecisionAnswer"):
        from . import abstract

        return getattr(abstract, name)
    if name == "HttpDecisionClient":
        from .http import HttpDecisionClient

        return HttpDecisionClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
