"""What a call is charged when it starts and what that settles to: pure functions of the entry's `accounting`.

A charge counts every way at once (requests, tokens, input, output); a pool takes from it the counts it has limits for.
The sources of the rules are the providers' own pages, kept as data in the catalog: `output: limit | expected`,
`cache_reads: free | counted`, `output_burndown`, `limit_on_input`.
"""

from __future__ import annotations

from typing import NamedTuple

from interlock.catalog.entry import Accounting
from interlock.catalog.usage import Usage


class Charge(NamedTuple):
    """One call, counted in each way a limit may count it."""

    requests: float
    tokens: float
    input_tokens: float
    output_tokens: float


#: `Charge(...)` at half its cost: for the two functions that every call goes through.
_counted = tuple.__new__

NOTHING = Charge(0, 0, 0, 0)
REQUEST_ONLY = Charge(1, 0, 0, 0)


def start_charge(
    accounting: Accounting, input_tokens: int, output_tokens: int, *, expected_output: float | None = None
) -> Charge:
    """The reservation: the estimated input and the output limit that is sent.

    Where the accounting says `output: expected` and `expected_output` is known, that stands for the limit (never above
    it). Burndown is not charged at the start (no provider does). With `limit_on_input` the whole output limit is taken
    from the input tokens as well.
    """
    output: float = output_tokens
    if expected_output is not None and accounting.output == "expected" and expected_output < output_tokens:
        output = expected_output
    into = input_tokens + output_tokens if accounting.limit_on_input else input_tokens
    return _counted(Charge, (1, input_tokens + output, into, output))


def arriving(accounting: Accounting, reserved: Charge) -> tuple[Charge, Charge | None]:
    """What of a reservation a provider takes from its bucket when the call arrives, and what it takes later.

    Output that is metered as it is produced is taken while the answer grows. Until then the provider's bucket still
    holds it, and so cannot refill over it.
    """
    if accounting.output == "limit":
        return reserved, None
    out = reserved.output_tokens
    return reserved._replace(tokens=reserved.tokens - out, output_tokens=0), Charge(0, out, 0, out)


def settle_charge(accounting: Accounting, usage: Usage, reserved: Charge = REQUEST_ONLY) -> Charge:
    """What was really used. A count the usage does not know keeps what was `reserved` for it."""
    if usage.input_tokens is None:
        into = reserved.input_tokens
    else:
        into = usage.input_tokens + (usage.cache_write_tokens or 0)
        if accounting.cache_reads == "counted":
            into += usage.cache_read_tokens or 0
    out = reserved.output_tokens if usage.output_tokens is None else usage.output_tokens * accounting.output_burndown
    return _counted(Charge, (1, into + out, into, out))
