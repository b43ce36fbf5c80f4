"""The provider the demo runs on: simulated, on loopback, with limits tight enough to bind; and its catalog."""

from __future__ import annotations

import re
from collections import Counter

from interlock.clients.simulator import PublishedLimits, SeenRequest, SimulatedProvider

from .figures import Served

MODEL = "simulated-small"
LIMITS = PublishedLimits(rpm=720, input_tpm=200_000, output_tpm=80_000, burst_s=6)

CATALOG = """\
providers:
  simulated: {{base_url: "{base_url}"}}
models:
  - id: {model}
    grade: SMALL
    provider: simulated
    wire_model_id: {model}
    context_window: 200000
    max_output_tokens: 8192
    limits: {{rpm: {rpm:f}, input_tpm: {input_tpm:f}, output_tpm: {output_tpm:f}, burst_s: {burst_s:f}}}
    accounting: {{output: expected, cache_reads: free}}
    structured: native
    prices: {{currency: USD, per: 1000000, input: 1.00, output: 5.00, as_of: 2026-11-30, source: made up for the demo}}
  - id: wordllama
    kind: embeddings
    provider: wordllama
    wire_model_id: l2_supercat_256
    dimensions: 256
    prices: {{input: 0}}
  - id: sparrow
    kind: decision
    provider: sparrow
    wire_model_id: sparrow-decider
    context_window: 512
    prices: {{input: 0}}
pins: {{SMALL: [{model}], embeddings: wordllama, decision: sparrow}}
"""


def latency_s(request: SeenRequest) -> float:
    """Long prompts take longer, as they do."""
    return 0.25 + min(len(request.text), 2_000) / 5_000


def answer(request: SeenRequest) -> dict[str, object]:
    """What a model would write, taken from the prompt itself: its name, its first sentence, its frequent words."""
    head, _, text = request.text.partition("\n\n")
    name = head.partition("`")[2].partition("`")[0]
    sentence = re.split(r"(?<=[.!?])\s|\n\n", text.strip(), maxsplit=1)[0]
    sentence = " ".join(sentence.split()).strip(" =-") or name
    words = Counter(word.lower() for word in re.findall(r"[A-Za-z]{5,}", text))
    return {
        "title": " ".join(f"{name}: {sentence}".split()[:8]).rstrip(".,;:"),
        "summary": sentence,
        "keywords": [word for word, _ in words.most_common(5)] or [name],
    }


def simulated_provider(limits: PublishedLimits = LIMITS, *, seed: int = 0) -> SimulatedProvider:
    return SimulatedProvider(limits={MODEL: limits}, latency_s=latency_s, answer=answer, seed=seed)


def served(limits: PublishedLimits = LIMITS) -> Served:
    """(capacity, rate a second) by dimension."""
    return {name: (per_minute / 60 * limits.burst_s, per_minute / 60) for name, per_minute in limits.rates()}


def catalog_text(base_url: str, limits: PublishedLimits = LIMITS) -> str:
    """The catalog that names the simulated model, its published limits, and the local models."""
    return CATALOG.format(
        base_url=base_url,
        model=MODEL,
        rpm=limits.rpm,
        input_tpm=limits.input_tpm,
        output_tpm=limits.output_tpm,
        burst_s=limits.burst_s,
    )
