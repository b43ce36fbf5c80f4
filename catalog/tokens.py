"""How many tokens a text is, estimated offline, and corrected per model by what its provider reports.

By script and length: letters of Western text make about four to a token, digits and punctuation fewer, a Chinese or
Japanese character about one. It errs on the high side, never raises, and its time is linear in the text.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from math import ceil

#: Tokens per message beyond its text: the role and the separators.
MESSAGE_TOKENS = 4
#: Tokens of an image, whatever its size: what a full-size one costs with most providers.
IMAGE_TOKENS = 1_600
#: Tokens of a document page, text and picture, and the bytes that are taken for a page.
PAGE_TOKENS = 2_500
PAGE_BYTES = 50_000

_LETTERS = string.ascii_letters.encode()
_DIGITS = string.digits.encode()
_BLANKS = b" "
_PER_LETTER, _PER_DIGIT, _PER_BLANK, _PER_SIGN = 0.27, 0.6, 0.12, 0.65

_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
#: Tokens a character, by script. What is in none of them is counted as a rare sign.
_SCRIPTS = (
    (re.compile("[\u0080-\u024f]+"), 0.9),  # Latin with marks, Latin-1 signs
    (re.compile("[\u0370-\u052f]+"), 0.5),  # Greek, Cyrillic
    (re.compile("[\u0590-\u06ff]+"), 0.75),  # Hebrew, Arabic
    (re.compile("[\u0900-\u0fff]+"), 0.9),  # Indic scripts, Thai, Lao, Tibetan
    (re.compile("[\u3040-\u30ff\uac00-\ud7af]+"), 1.1),  # Kana, Hangul
    (re.compile("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]+"), 1.2),  # Han, wide signs
)
_PER_RARE = 3.0


def estimate_text(text: object) -> int:
    """Tokens of `text` (str, bytes or None). 0 for nothing, otherwise at least 1."""
    if not text:
        return 0
    if isinstance(text, bytes | bytearray):
        return ceil(len(text) * _PER_SIGN)
    return ceil(_weight(text if isinstance(text, str) else str(text)))


def estimate_document(size_bytes: int) -> int:
    """Tokens of a document of which only the size is known."""
    return PAGE_TOKENS * max(1, ceil(size_bytes / PAGE_BYTES))


def _weight(text: str) -> float:
    plain = text.encode("ascii", "ignore")
    rest = len(plain)
    total = 0.0
    for kind, weight in ((_LETTERS, _PER_LETTER), (_DIGITS, _PER_DIGIT), (_BLANKS, _PER_BLANK)):
        without = len(plain.translate(None, kind))
        total += (len(plain) - without) * weight
        rest -= len(plain) - without
    total += rest * _PER_SIGN
    return total if text.isascii() else total + _weight_beyond_ascii("".join(_BEYOND_ASCII.findall(text)))


def _weight_beyond_ascii(text: str) -> float:
    total, known = 0.0, 0
    for script, weight in _SCRIPTS:
        count = sum(map(len, script.findall(text)))
        known += count
        total += count * weight
    return total + (len(text) - known) * _PER_RARE


class Estimate(int):
    """An estimated number of tokens that remembers what it was before its model's correction."""

    raw: int

    @classmethod
    def of(cls, raw: int, factor: float) -> Estimate:
        return cls.known(ceil(raw * factor), raw)

    @classmethod
    def known(cls, tokens: int, raw: int) -> Estimate:
        """Both are known: of a sum, say."""
        estimate = cls(tokens)
        estimate.raw = raw
        return estimate


@dataclass(slots=True)
class _Correction:
    factor: float = 1.0
    seen: int = 0


class TokenEstimator:
    """Estimates per model. Each report moves that model's factor towards reported / estimated, upwards faster.

    So the factor settles above the middle of the reports, and a provider's limit is not passed by requests that turn
    out larger than estimated. It costs no throughput: what was charged too much comes back when the call ends. Until
    `ENOUGH` reports have come it only goes up: one small request at the start says little about the others, and a
    first burst that is estimated too low is sent whole before its own reports can say so.
    """

    #: A factor stays within these, so one odd report (a cache counted twice) cannot stop a model or flood it.
    LOWEST, HIGHEST = 0.25, 4.0
    #: Reports before a factor goes down.
    ENOUGH = 50
    #: The weight of a new report once there are many: one that says less, and one that says more.
    WEIGHT, WEIGHT_UP = 0.03, 0.5

    def __init__(self) -> None:
        self._corrections: dict[str, _Correction] = {}

    def factor(self, model_id: str) -> float:
        known = self._corrections.get(model_id)
        return known.factor if known else 1.0

    def estimate(self, model_id: str, text: object) -> Estimate:
        return self.corrected(model_id, estimate_text(text))

    def corrected(self, model_id: str, raw_tokens: int) -> Estimate:
        """An uncorrected count (a whole conversation's, say) with the model's correction."""
        return Estimate.of(raw_tokens, self.factor(model_id))

    def observe(self, model_id: str, estimated: int, reported: int | None) -> None:
        """What a provider reported for a request that was estimated so (all its input, cache included)."""
        raw = getattr(estimated, "raw", estimated)
        if raw < 1 or reported is None or reported < 1:
            return
        known = self._corrections.setdefault(model_id, _Correction())
        ratio = min(max(reported / raw, self.LOWEST), self.HIGHEST)
        known.seen += 1
        if ratio > known.factor:
            known.factor += self.WEIGHT_UP * (ratio - known.factor)
        elif known.seen > self.ENOUGH:
            weight = max(1 / (known.seen - self.ENOUGH + 1), self.WEIGHT)
            known.factor += weight * (ratio - known.factor)
