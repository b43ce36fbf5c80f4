"""What a call is expected to put out: a running quantile of what calls of its kind put out before. Pure.

A kind is learnt twice: finely (the entry, the workflow, the job, its system prompt and response model: whatever the
caller says calls of one kind have in common) and coarsely (the model spec alone). A classification and an essay with
one spec so have an estimate each; where every call is of a kind of its own (a system prompt with the customer's name in
it) the coarse one serves, at a higher quantile. Before a few answers are known nothing is expected: the whole limit is
reserved, so a first burst is careful, and the first answers open it up.

What is reserved is the quantile, or what an answer under way has put out on average, whichever is more. The second is
sum(x^2) / (2 sum(x)): at any moment a long answer is as much more likely to be under way as it lasts longer. Without it
a kind of many short and a few long answers is let in by the short ones, and the long ones, which last, take from the
provider's bucket what nobody reserved. The first answers to end are short ones too, so answers that have grown beyond
the quantile and have not ended (`under_way`) count as long as their limit until they have.

The quantile is exact over the latest `REMEMBERED_ANSWERS`: two short lists a kind, and the oldest kind goes when there
are too many. Figures: benchmarks/admission/expected.py.
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
FORGET = 1.0 - 1.0 / REMEMBERED_ANSWERS


class Outputs:
    """The latest outputs of one kind, in order of arrival and in order of size, and how fast they came.

    `under_way`: of answers that have grown beyond the quantile, the sum of their limits and of their limits' squares.
    """

    __slots__ = ("_latest", "_seconds", "_sorted", "_squares", "_sum", "_tokens", "under_way")

    def __init__(self) -> None:
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []
        self._sum = self._squares = 0.0
        self._tokens = self._seconds = 0.0  # sums in which the latest weigh most
        self.under_way = (0.0, 0.0)

    def __len__(self) -> int:
        return len(self._latest)

    @property
    def speed(self) -> float:
        """Tokens a second, over whole answers; 0 while that is not known."""
        return self._tokens / self._seconds if self._seconds > 0 and len(self._latest) >= ENOUGH else 0.0

    def add(self, tokens: float, seconds: float = 0.0) -> None:
        self._tokens = self._tokens * FORGET + tokens
        self._seconds = self._seconds * FORGET + seconds
        if len(self._latest) == REMEMBERED_ANSWERS:
            oldest = self._latest.popleft()
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._sum, self._squares = self._sum - oldest, self._squares - oldest * oldest
        self._latest.append(tokens)
        insort(self._sorted, tokens)
        self._sum, self._squares = self._sum + tokens, self._squares + tokens * tokens

    def quantile(self, q: float) -> float:
        """The smallest output that at least `q` of them do not exceed."""
        return self._sorted[min(ceil(q * len(self._sorted)), len(self._sorted)) - 1]

    @property
    def mean(self) -> float:
        return self._sum / len(self._latest)

    @property
    def grown(self) -> float:
        """What an answer under way has put out on average."""
        more, squares = self.under_way
        total = self._sum + more
        return (self._squares + squares) / (2.0 * total) if total > 0 else 0.0


class ExpectedOutput:
    """What the calls of one pool are expected to put out, by (`key`, `kind`)."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[Hashable, Outputs] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    def known(self, key: Hashable, kind: Hashable) -> tuple[Outputs | None, bool]:
        """What is known of this kind, and whether that is of all kinds of its key together. None: too little."""
        if kind is not None:
            outputs = self._kinds.get((key, kind))
            if outputs is not None and len(outputs) >= ENOUGH:
                return outputs, False
        outputs = self._kinds.get(key)
        if outputs is None or len(outputs) < (ENOUGH if kind is None else ENOUGH_COARSE):
            return None, False
        return outputs, kind is not None

    def expect(self, accounting: Accounting, key: Hashable, kind: Hashable, limit: float) -> float:
        """Tokens to reserve for an answer of at most `limit` tokens."""
        outputs, coarse = self.known(key, kind)
        if outputs is None:
            return limit
        q = accounting.expected_quantile
        q = 1.0 - (1.0 - q) * COARSE_SHARE if coarse else q
        return min(max(outputs.quantile(q), outputs.grown, accounting.expected_floor_tokens), limit)

    def observe(self, key: Hashable, kind: Hashable, tokens: float, seconds: float = 0.0) -> None:
        """Learn from one answer that took so many seconds."""
        self._of(key).add(tokens, seconds)
        if kind is not None:
            self._of((key, kind)).add(tokens, seconds)

    def _of(self, name: Hashable) -> Outputs:
        outputs = self._kinds.pop(name, None)
        outputs = self._kinds[name] = Outputs() if outputs is None else outputs  # the latest used stand last
        if len(self._kinds) > REMEMBERED_KINDS:
            del self._kinds[next(iter(self._kinds))]
        return outputs
