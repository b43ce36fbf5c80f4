"""What a call is expected to put out: a running quantile of what calls of its kind put out before. Pure.

A kind is learnt twice: finely (the entry, the workflow, the job, its system prompt and response model: whatever the
caller says calls of one kind have in common) and coarsely (the model spec alone). A classification and an essay with
one spec so have an estimate each; where every call is of a kind of its own (a system prompt with the customer's name in
it) the coarse one serves, at a higher quantile. Before a few answers are known nothing is expected: the whole limit is
reserved, so a first burst is careful, and the first answers open it up.

The quantile is exact over the latest `REMEMBERED_ANSWERS`: two short lists a kind, and the oldest kind goes when there
are too many. Why a high quantile and not the mean (which makes debts and refunds cancel): the provider charges while an
answer grows, and of the answers under way most are long ones, for they last. What those put out beyond a mean is owed
to nobody until they end; see docs/admission.md, and benchmarks/admission/expected.py for the figures.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable
from math import ceil

from interlock.catalog.entry import Accounting

REMEMBERED_KINDS = 256
REMEMBERED_ANSWERS = 64
#: Answers after which a kind is known; of the coarse kind, after which it stands for one that is not.
ENOUGH, ENOUGH_COARSE = 5, 20
#: The coarse estimate leaves only this share of what the quantile leaves above it.
COARSE_SHARE = 0.5


class Outputs:
    """The latest outputs of one kind, in order of arrival and in order of size."""

    __slots__ = ("_latest", "_sorted")

    def __init__(self) -> None:
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._latest)

    def add(self, tokens: float) -> None:
        if len(self._latest) == REMEMBERED_ANSWERS:
            oldest = self._latest.popleft()
            del self._sorted[bisect_left(self._sorted, oldest)]
        self._latest.append(tokens)
        insort(self._sorted, tokens)

    def quantile(self, q: float) -> float:
        """The smallest output that at least `q` of them do not exceed."""
        return self._sorted[min(ceil(q * len(self._sorted)), len(self._sorted)) - 1]


class ExpectedOutput:
    """What the calls of one pool are expected to put out, by (`key`, `kind`)."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[Hashable, Outputs] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    def expect(self, accounting: Accounting, key: Hashable, kind: Hashable, limit: float) -> float:
        """Tokens to reserve for an answer of at most `limit` tokens."""
        q = accounting.expected_quantile
        outputs = self._kinds.get((key, kind)) if kind is not None else None
        if outputs is None or len(outputs) < ENOUGH:
            outputs, coarse = self._kinds.get(key), kind is not None
            if outputs is None or len(outputs) < (ENOUGH_COARSE if coarse else ENOUGH):
                return limit
            q = 1.0 - (1.0 - q) * COARSE_SHARE if coarse else q
        return min(max(outputs.quantile(q), accounting.expected_floor_tokens), limit)

    def observe(self, key: Hashable, kind: Hashable, tokens: float) -> None:
        """Learn from one answer."""
        self._of(key).add(tokens)
        if kind is not None:
            self._of((key, kind)).add(tokens)

    def _of(self, name: Hashable) -> Outputs:
        outputs = self._kinds.pop(name, None) or Outputs()
        self._kinds[name] = outputs  # the latest used stand last
        if len(self._kinds) > REMEMBERED_KINDS:
            del self._kinds[next(iter(self._kinds))]
        return outputs
