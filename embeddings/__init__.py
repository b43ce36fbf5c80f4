"""Text to vectors of one width, whatever the provider.

    purpose    EmbeddingPurpose: DOCUMENT or QUERY
    client     EmbeddingsClient: what a job is given to embed with
    response   EmbeddingsResponse: unit vectors, usage, cost
    abstract   AbstractEmbeddingsClient: the template of every provider
    packing    which texts share a request; cutting: long texts cut or split (pure)
    sending    the requests of a call; the texts that a provider refuses, found
    errors     the errors that name single texts
    align      which vector belongs to which text (pure)
    vectors    normalise, cut, pad (pure)
    guard      one process, one embedding model
    providers/ one file a provider, imported at its first call

`interlock.runtime` may import it; it builds on `clients`, `admission` and `catalog`. Importing the package does not
import numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .client import EmbeddingsClient
from .errors import BlankTextError, TextError, TextRefusedError, TextTooLongError, TooManyRefusedError
from .guard import EmbeddingModelGuard
from .packing import Caps, Packing, plan_requests
from .purpose import EmbeddingPurpose
from .response import EmbeddingsResponse

if TYPE_CHECKING:
    from .abstract import AbstractEmbeddingsClient, EmbeddingAnswer
    from .vectors import VectorError

_NEEDS_NUMPY = {"AbstractEmbeddingsClient": "abstract", "EmbeddingAnswer": "abstract", "VectorError": "vectors"}

__all__ = [
    "AbstractEmbeddingsClient",
    "BlankTextError",
    "Caps",
    "EmbeddingAnswer",
    "EmbeddingModelGuard",
    "EmbeddingPurpose",
    "EmbeddingsClient",
    "EmbeddingsResponse",
    "Packing",
    "TextError",
    "TextRefusedError",
    "TextTooLongError",
    "TooManyRefusedError",
    "VectorError",
    "plan_requests",
]


def __getattr__(name: str) -> Any:
    if name in _NEEDS_NUMPY:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_NEEDS_NUMPY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
