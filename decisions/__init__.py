"""Questions about a state, answered with probabilities.

    questions  Choice, Noul, Score: what is asked
    request    DecisionRequest: a state and its questions
    response   DecisionResponse and the answers
    client     DecisionClient: what a job is given to decide with
    formulas   confidence, recomputed from the probabilities (pure)
    wire       the System One wire, written and read (pure)
    echo       keeps a provider's words out of errors where they repeat the state (pure)
    abstract   AbstractDecisionClient: the template of every provider
    providers/ one file a provider, imported at its first call

`interlock.runtime` may import it; it builds on `clients`, `admission` and `catalog`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .client import DecisionClient
from .questions import Choice, Noul, Option, Question, Score
from .request import DecisionRequest
from .response import Answer, ChoiceAnswer, DecisionResponse, NoulAnswer, ScoreAnswer

if TYPE_CHECKING:
    from .abstract import AbstractDecisionClient, DecisionAnswer

__all__ = [
    "AbstractDecisionClient",
    "Answer",
    "Choice",
    "ChoiceAnswer",
    "DecisionAnswer",
    "DecisionClient",
    "DecisionRequest",
    "DecisionResponse",
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
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
