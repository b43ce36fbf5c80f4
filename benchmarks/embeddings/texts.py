"""Short texts as a corpus has them, the same every time: sentences of common words, twelve words in the middle."""

from __future__ import annotations

import random
from collections.abc import Iterator

_TEXT = """
the invoice was charged twice please refund order customer account password reset email delivery late parcel
broken screen battery returns policy shipping address change payment failed card declined login error message
support ticket agent answered quickly thank you very much waiting days week month price discount coupon expired
subscription cancel renew upgrade plan feature request bug crash update version mobile app website slow search
results wrong language translate document contract sign legal question tax receipt company name phone number
"""
_TEXT = """
the invoice was charged twice please refund order customer account password reset email delivery late parcel
broken screen battery returns policy shipping address change payment failed card declined login error message
support ticket agent answered quickly thank you very much waiting days week month price discount coupon expired
subscription cancel renew upgrade plan feature request bug crash update version mobile app website slow search
results wrong language translate document contract sign legal question tax receipt company name phone number
"""
WORDS = _TEXT.split()


def pairs(count: int, seed: int = 0) -> Iterator[tuple[int, str]]:
    """(id, text), made as they are asked for."""
    rng = random.Random(seed)
    for number in range(count):
        yield number, f"{number} " + " ".join(rng.choices(WORDS, k=rng.randrange(4, 20)))
