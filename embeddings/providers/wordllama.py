"""`wordllama`: a local embedding model of 16 MB inside its own wheel. No key, no network, no download.

It is a bag of words: the vector is the mean of the words' vectors, so order means nothing ("dog bites man" and "man
bites dog" have one vector) and neither does the purpose. Good for finding and grouping texts by what they are about;
not for telling apart what is said about it. It has no window of its own: a long text is averaged whole, and
`context_window` in the entry is yours to set.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlock.catalog.usage import Usage

from ..abstract import AbstractEmbeddingsClient, EmbeddingAnswer
from ..purpose import EmbeddingPurpose

if find_spec("wordllama") is None:  # said here, once, so that the registry can name the extra
    raise ModuleNotFoundError("No module named 'wordllama'", name="wordllama")

# A step in a thread handles this many texts; between two steps a cancelled call ends.
_TEXTS_A_STEP = 512
# A request of more characters leaves the event loop: about a millisecond of tokenising.
_CHARACTERS_INLINE = 4_000
_TOKENS_AT_ONCE = 1_024


class WordLlamaEmbeddingsClient(AbstractEmbeddingsClient):
    """Embeds in this process. `usage.input_tokens` are the tokens the model really read."""

    async def send(self, texts: Sequence[str], purpose: EmbeddingPurpose) -> EmbeddingAnswer:
        model = _LOADED[0] if _LOADED else await asyncio.to_thread(_load)
        if sum(map(len, texts)) <= _CHARACTERS_INLINE:
            steps = [model.embed(texts)]
        else:
            starts = range(0, len(texts), _TEXTS_A_STEP)
            steps = [await asyncio.to_thread(model.embed, texts[at : at + _TEXTS_A_STEP]) for at in starts]
        return EmbeddingAnswer(
            vectors=np.concatenate([step.vectors for step in steps]),
            usage=Usage(input_tokens=sum(step.tokens for step in steps), output_tokens=0),
            served_model=model.name,
        )


class _Step(NamedTuple):
    vectors: NDArray[np.float32]
    tokens: int


class _BagOfWords:
    """The word vectors [words, 256] and their tokenizer. Immutable, so threads share it."""

    def __init__(self, loaded: Any, name: str) -> None:
        self.name = name
        self._words: NDArray[np.float32] = loaded.embedding
        self._tokenizer = loaded.tokenizer
        self._tokenizer.no_padding()

    def embed(self, texts: Sequence[str]) -> _Step:
        encoded = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        out = np.zeros((len(encoded), self._words.shape[1]), dtype=np.float32)
        tokens = 0
        for row, one in enumerate(encoded):
            ids = np.minimum(np.asarray(one.ids, dtype=np.int64), len(self._words) - 1)
            tokens += len(ids)
            if len(ids):
                out[row] = self._sum(ids) / np.float32(len(ids))
        return _Step(out, tokens)

    def _sum(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        if len(ids) <= _TOKENS_AT_ONCE:
            summed: NDArray[np.float32] = np.add.reduce(self._words[ids], axis=0)
            return summed
        # By distinct word: the memory is bounded by the vocabulary, not by the length of the text.
        words, counts = np.unique(ids, return_counts=True)
        return counts.astype(np.float32) @ self._words[words]


# The weights are read-only and 32 MB in memory, so every runtime of a process shares them.
_LOADED: list[_BagOfWords] = []
_LOADING = threading.Lock()


def _load() -> _BagOfWords:
    with _LOADING:
        if not _LOADED:
            _LOADED.append(_read())
        return _LOADED[0]


def _read() -> _BagOfWords:
    with _root_logger_untouched():
        package = import_module("wordllama")
        folder = Path(str(package.__file__)).parent  # its default folder is not where its wheel puts the weights
        loaded = package.WordLlama.load(cache_dir=folder, disable_download=True)
    return _BagOfWords(loaded, f"wordllama-{package.__version__}")


@contextmanager
def _root_logger_untouched() -> Iterator[None]:
    """Importing wordllama configures the root logger, which is the application's to configure. A handler that is there
    keeps it from that; without it, what other threads log meanwhile would be on the screen."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    if not handlers:
        root.addHandler(logging.lastResort or logging.NullHandler())  # as if there were none
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
