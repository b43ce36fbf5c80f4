"""How many output tokens a call may produce: one formula for the reservation and for the wire.

min(declared + thinking budget(depth), max_output_tokens, context_window - input)
"""

from __future__ import annotations

from fractions import Fraction

from interlock.errors import ContextWindowExceededError, InvalidRequestError

from .entry import Limits, ModelEntry
from .words import Depth, OutputSize

#: What a call is given that names no limit.
DEFAULT_OUTPUT_TOKENS = 8_192
#: Providers refuse a smaller thinking budget.
SMALLEST_THINKING = 1_024

SHARES = {
    Depth.IMMEDIATE: Fraction(0),
    Depth.QUICK: Fraction(1, 16),
    Depth.STANDARD: Fraction(1, 8),
    Depth.THOROUGH: Fraction(1, 4),
}


def output_limit(
    entry: ModelEntry,
    *,
    declared: int | None = None,
    output: OutputSize | None = None,
    depth: Depth = Depth.IMMEDIATE,
    input_tokens: int = 0,
) -> tuple[int, int]:
    """`(output_tokens, thinking_tokens)`, in tokens; the first includes the second and is the wire's own limit.

    Raises `ContextWindowExceededError` (nothing sent) when the input leaves no room in the window.
    """
    room = _room(entry, input_tokens)
    answer = _answer_tokens(entry, declared, output, room)
    thinking = thinking_budget(entry, depth, answer)
    bound = min((each for each in (entry.max_output_tokens, room) if each is not None), default=answer + thinking)
    total = min(answer + thinking, bound)
    kept = _thinking_within(total, answer, thinking)
    return (total, kept) if kept else (min(answer, bound), 0)


def thinking_budget(entry: ModelEntry, depth: Depth, answer_tokens: int) -> int:
    """Tokens set aside for thinking at this depth: the entry's own figure, or a share of its output ceiling."""
    if depth in entry.thinking.budgets:
        return max(entry.thinking.budgets[depth], 0)
    share = SHARES[depth]
    if entry.thinking.mode == "none" or not share:
        return 0
    return max(SMALLEST_THINKING, int((entry.max_output_tokens or answer_tokens) * share))


def default_output_tokens(limits: Limits, *, input_tokens: int, reserved: bool) -> int:
    """What a call that names no limit asks for: 8,192, or less where its pool could never grant that.

    `reserved`: whether the output limit is reserved against the pool's tokens (`accounting.output: limit`).
    """
    if not reserved:
        return DEFAULT_OUTPUT_TOKENS
    spans = [(limits.tpm, limits.burst_s / 60, input_tokens), (limits.output_tpm, limits.burst_s / 60, 0)]
    spans.append((limits.tpd, 1.0, input_tokens))
    fits = [int(rate * share) - taken for rate, share, taken in spans if rate is not None]
    return max(1, min([DEFAULT_OUTPUT_TOKENS, *fits]))


def _room(entry: ModelEntry, input_tokens: int) -> int | None:
    if entry.context_window is None:
        return None
    room = entry.context_window - input_tokens
    if room < 1:
        raise ContextWindowExceededError(
            f"{entry.id}: about {input_tokens:,} input tokens leave no room for an answer in its window of "
            f"{entry.context_window:,}: send less, or name a model with a larger window",
            model=entry.id,
            provider=entry.provider,
            sent=False,
        )
    return room


def _answer_tokens(entry: ModelEntry, declared: int | None, output: OutputSize | None, room: int | None) -> int:
    if declared is not None:
        return max(1, declared)
    if output is None:
        return DEFAULT_OUTPUT_TOKENS
    if output is not OutputSize.MAX:
        return int(output.value)
    ceiling = entry.max_output_tokens or room
    if ceiling is None:
        raise InvalidRequestError(
            f"{entry.id} states neither max_output_tokens nor context_window, so OutputSize.MAX means nothing for it",
            model=entry.id,
            provider=entry.provider,
            sent=False,
        )
    return ceiling


def _thinking_within(total: int, answer: int, thinking: int) -> int:
    """When the sum was cut the answer keeps what it asked for, or half of what there is."""
    left = min(thinking, max(total - answer, total // 2))
    return left if left >= min(thinking, SMALLEST_THINKING) else 0
