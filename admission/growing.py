"""Answers under way, where a provider takes output tokens from its bucket as they are produced.

A reservation says what an answer will probably put out. What it really puts out is told when it ends; but the provider
takes it while it grows, and of the answers under way most are long ones, for they last. So what they have grown to is
guessed from their age and from how fast answers of their kind came before, twice a second and only while there are any:
the part of a reservation that is taken by now no longer stands in the provider's bucket, and what has grown beyond
its reservation is owed at once. The settlement puts right whatever was guessed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .charges import Charge

if TYPE_CHECKING:
    from .clock import Timer
    from .expected import Outputs
    from .reservation import Permit
    from .settling import Settling

#: Seconds between two looks.
EVERY_S = 0.5


class Growing:
    """The permits of one `Admission` whose answers are under way and metered as they grow."""

    __slots__ = ("_loop", "_outgrown", "_permits", "_settling", "_timer")

    def __init__(self, settling: Settling) -> None:
        self._settling = settling
        self._permits: dict[Permit, float] = {}  # what each is guessed to have put out
        self._outgrown: set[Outputs] = set()
        self._timer: Timer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # whose timer it is

    def __len__(self) -> int:
        return len(self._permits)

    def begin(self, permit: Permit, now: float) -> None:
        self._permits[permit] = 0.0
        if self._timer is None or (self._loop is not None and not self._loop.is_running()):
            self._look_again(now)

    def _look_again(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()  # of a loop that has gone
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None  # a clock moved by hand needs none
        self._timer = self._settling.clock.call_at(now + EVERY_S, self._look)

    def end(self, permit: Permit) -> None:
        self._permits.pop(permit, None)

    def _look(self) -> None:
        self._timer = None
        for outputs in self._outgrown:
            outputs.under_way = (0.0, 0.0)
        self._outgrown.clear()
        if not self._permits:
            return
        now = self._settling.clock.now()
        for permit, before in self._permits.items():
            call = permit.call
            known = call.pool.expected.known(call.key, permit.waiting.demand.kind)[0]
            if known is None:
                continue
            guess = min(known.speed * (now - permit.sent_at), call.output_tokens)
            if guess > known.quantile(call.accounting.expected_quantile):
                limits, squares = known.under_way
                known.under_way = limits + call.output_tokens, squares + call.output_tokens**2
                self._outgrown.add(known)
            if guess > before:
                self._permits[permit] = guess
                self._grow(permit, before, guess)
        self._look_again(now)

    def _grow(self, permit: Permit, before: float, guess: float) -> None:
        granted, reserved = permit.unproduced, permit.reserved
        if granted is not None:
            taken = min(guess - before, granted.output_tokens)
            self._settling.left(permit.call.pool, permit.waiting, Charge(0, taken, 0, taken), self._settling.now())
            rest = granted.output_tokens - taken
            permit.unproduced = Charge(0, rest, 0, rest) if rest > 0 else None
        if reserved is not None and guess > reserved.output_tokens:
            more = guess - reserved.output_tokens
            permit.reserved = self._settling.owe(permit.call.pool, reserved, more)
