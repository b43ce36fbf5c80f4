"""What one attempt of a job was declared to need: bound, priced, ready for the line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from interlock.catalog.limits import output_limit
from interlock.catalog.pricing import worst_cost
from interlock.catalog.words import Kind, OutputSize
from interlock.errors import ConfigurationError, OutputTruncatedError, UnpricedModelError

if TYPE_CHECKING:
    from interlock.admission import Demand
    from interlock.catalog import ModelBinding, ModelSpec

    from .database import DatabaseNeed
    from .requirements import JobRequirements


ZERO = Decimal(0)
#: What is asked where no cap asks for a price.
NO_PRICE = (ZERO, "USD")


@dataclass(frozen=True, slots=True)
class Prepared:
    """It does not wait itself: what waits is the demand, and the bindings beside it.

    `demand` None: nothing is needed. `ask` is the worst price in `currency`, 0 where no cap asks for it. `needs` stand
    here while a provider is to be asked how large a call is: what is prepared holds if it does not answer."""

    demand: Demand | None
    bindings: tuple[ModelBinding, ...] = ()
    databases: tuple[DatabaseNeed, ...] = ()
    ask: Decimal = ZERO
    currency: str = "USD"
    needs: JobRequirements | None = None


NOTHING_NEEDED = Prepared(None)


def described(demand: Demand, bindings: Iterable[ModelBinding]) -> str:
    """What is held, in words."""
    names = [f"a call of {binding.entry.id}" for binding in bindings]
    names += [account.name for account, _ in demand.held]
    return " and ".join(names)


def raisable(bindings: Iterable[ModelBinding], error: OutputTruncatedError) -> frozenset[ModelSpec]:
    """The requirements that a cut-off answer came from and that leave its model room for more. What a decision may
    write is sized by its question, whatever is reserved: the same would be cut at the same place."""
    return frozenset(
        binding.spec
        for binding in bindings
        if binding.entry.id == error.model
        and binding.spec.kind is not Kind.DECISION
        and binding.output_tokens < _ceiling(binding)
    )


def _ceiling(binding: ModelBinding) -> int:
    """The most that the model can answer to this input; 0 where its entry states no bound, so none can be reserved."""
    entry = binding.entry
    if entry.max_output_tokens is None and entry.context_window is None:
        return 0
    return output_limit(entry, output=OutputSize.MAX, input_tokens=binding.input_tokens)[0]


def worst_price(bindings: tuple[ModelBinding, ...]) -> tuple[Decimal, str]:
    """What these calls can cost at most, and in which currency. Raises UnpricedModelError before anything is sent."""
    total, currency = Decimal(0), ""
    for binding in bindings:
        entry = binding.entry
        price = worst_cost(entry.prices, binding.input_tokens, binding.output_tokens)
        if price is None or entry.prices is None:
            raise UnpricedModelError(
                f"{entry.id} has no price in the catalog, so the cost cap could not be kept: give it prices, or run"
                " without a cap",
                model=entry.id,
                provider=entry.provider,
                sent=False,
            )
        if price and currency not in ("", entry.prices.currency):
            raise ConfigurationError(
                f"under a cost cap one job cannot be priced in two currencies: {currency} and {entry.prices.currency}"
                f" ({entry.id})"
            )
        currency = entry.prices.currency if price else currency
        total += price * binding.calls
    return total, currency or "USD"
