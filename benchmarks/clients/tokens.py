"""How far off the offline estimate of input tokens is, as it is corrected by what a provider reports.

The provider counts with real tokenizers, GPT's two: their vocabularies lie in the litellm package, so nothing is
fetched. Calls are sent one after the other through the client; what is compared is the estimate made right before each
call and the input that its answer reported.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median

from interlock.catalog.tokens import TokenEstimator
from interlock.clients.conversation import Conversation
from interlock.clients.measure import input_tokens
from interlock.clients.simulator import Answer, SimulatedProvider

from .seat import client
from .workload import MODEL

CALLS, SEEDS = 200, 5
ENCODINGS = ("cl100k_base", "o200k_base")

_ENGLISH = (
    "The customer says that the parcel arrived two days late and that the box was open.",
    "Please summarise the thread below in three sentences and name whoever has to act next.",
    "Our quarterly revenue rose by seven percent, mostly because of renewals in the north.",
    "It rained in the morning; by noon the streets were dry again and the market was full.",
    "Could you explain why the invoice was sent twice, and which of the two is to be paid?",
)
_GERMAN = (
    "Die Lieferung kam zwei Tage zu spät an, und der Karton war bereits geöffnet.",
    "Bitte fassen Sie den folgenden Schriftwechsel in drei Sätzen zusammen.",
    "Der Umsatz stieg im letzten Quartal um sieben Prozent, vor allem durch Verlängerungen.",
)
_CODE = (
    "def total(items):\n    return sum(item.price * item.count for item in items if item.count > 0)\n",
    'for row in cursor.execute("SELECT id, name FROM users WHERE age > ?", (21,)):\n    print(row["id"])\n',
    "async with session.get(url, headers=headers) as response:\n    data = await response.json()\n",
)
_JSON = (
    '{"id": 48213, "status": "open", "items": [{"sku": "A-17", "count": 3}, {"sku": "B-02", "count": 1}]}\n',
    '{"timestamp": "2026-11-30T12:00:00Z", "level": "error", "message": "connection reset by peer"}\n',
)
_JAPANESE = (
    "荷物が二日遅れて届き、箱はすでに開いていました。",
    "次のやり取りを三つの文でまとめてください。",
    "先四半期の売上は七パーセント増えました。",
)
TEXTS = {"English": _ENGLISH, "German": _GERMAN, "code": _CODE, "JSON": _JSON, "Japanese": _JAPANESE,
         "mixed": _ENGLISH + _GERMAN + _CODE + _JSON}  # fmt: skip


def counter(encoding: str) -> Callable[[str], int]:
    """The real tokenizer's count of a text, from a vocabulary on this machine."""
    found = find_spec("litellm")
    if found is None or found.origin is None:
        raise SystemExit("the vocabularies lie in the litellm package: pip install 'interlock[litellm]'")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(found.origin).parent / "litellm_core_utils" / "tokenizers")
    import tiktoken

    known = tiktoken.get_encoding(encoding)
    return lambda text: len(known.encode(text, disallowed_special=()))


def conversations(texts: tuple[str, ...], seed: int) -> Iterator[Conversation]:
    """Calls as they come: a system prompt, and from one sentence to some hundred."""
    chosen = random.Random(seed)
    while True:
        many = round(chosen.lognormvariate(2.2, 0.9)) + 1
        yield Conversation.of(" ".join(chosen.choice(texts) for _ in range(many)), system="Be brief, and be exact.")


async def errors(texts: tuple[str, ...], count: Callable[[str], int], seed: int) -> list[float]:
    """Of each call: (estimated - reported) / reported."""
    estimator, found = TokenEstimator(), list[float]()
    async with SimulatedProvider(count_tokens=count, answer=lambda seen: Answer(text="Fine."), keep_requests=1) as one:
        template, bound = client("openai", one.openai_url, estimator)
        for _, conversation in zip(range(CALLS), conversations(texts, seed), strict=False):
            estimated = input_tokens(MODEL, conversation, estimator=estimator)
            response = await bound.single_response(conversation)
            reported = response.usage.input_tokens
            assert reported is not None
            assert not response.usage.estimated
            found.append((estimated - reported) / reported)
        await template.aclose()
    return found


def rows() -> list[tuple[str, ...]]:
    """By text and tokenizer: the mean of the errors' sizes and how many fell short, in four stretches of calls."""
    stretches = ((0, 1), (40, 50), (50, 60), (190, 200))
    lines = [("text", "tokenizer", *(f"calls {a + 1}-{b}" for a, b in stretches), "short after 50")]
    for kind, texts in TEXTS.items():
        for encoding in ENCODINGS:
            count = counter(encoding)
            runs = [asyncio.run(errors(texts, count, seed)) for seed in range(SEEDS)]
            means = [
                f"{100 * mean(abs(error) for run in runs for error in run[a:b]):.0f}% "
                f"({100 * median(error for run in runs for error in run[a:b]):+.0f})"
                for a, b in stretches
            ]
            short = mean(error < 0 for run in runs for error in run[50:])
            lines.append((kind, encoding, *means, f"{100 * short:.0f}%"))
    return lines
