"""Which models exist, what they cost, and which one serves a request.

    words      closed vocabularies: Grade, Kind, Input, Depth, OutputSize, Status
    usage      Usage: what a call consumed, in one normal form
    entry      ModelEntry and its parts, as the file states them
    spec       ModelSpec (what is asked), ModelBinding (what was chosen)
    loader     the file as a whole; below it scalars (what a bare word is), document (nodes with lines, bounded), reader
               (from nodes to models), rules (what entries owe each other), addresses (whether a base_url is one): every
               error with file, line and key
    catalog    Catalog: entries, pools, providers, pins
    picker     from a spec to an entry, and why the others were skipped
    limits     output_limit: the one formula for the reservation and the wire
    pricing    what a usage costs
    pricebook  which entry's prices hold for a wire id
    days       when a limit per day begins anew
    editing    a catalog file with a few words changed, and every other byte as it was; adding: with entries put in
    tokens     the offline estimate of input tokens, corrected by what providers report; cut: a text cut to so many

Everyone may import it; it imports nothing of Interlock but `interlock.errors`. A name is loaded on its first use, so a
module that needs `Usage` alone does not pay for the YAML reader.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .catalog import Catalog
    from .entry import Accounting, Limits, ModelEntry, Prices, PriceTier, ProviderSettings, Thinking
    from .limits import DEFAULT_OUTPUT_TOKENS, default_output_tokens, output_limit, thinking_budget
    from .picker import DefaultPicker, Picker, Seat, Situation, bind
    from .pricebook import PriceRow
    from .pricing import cost, parse_cap, worst_cost
    from .spec import ModelBinding, ModelSpec
    from .tokens import TokenEstimator, estimate_document, estimate_text
    from .usage import Usage
    from .words import Depth, Grade, Input, Kind, OutputSize, Status

_HOMES = {
    "Accounting": ".entry",
    "Catalog": ".catalog",
    "DEFAULT_OUTPUT_TOKENS": ".limits",
    "DefaultPicker": ".picker",
    "Depth": ".words",
    "Grade": ".words",
    "Input": ".words",
    "Kind": ".words",
    "Limits": ".entry",
    "ModelBinding": ".spec",
    "ModelEntry": ".entry",
    "ModelSpec": ".spec",
    "OutputSize": ".words",
    "Picker": ".picker",
    "PriceRow": ".pricebook",
    "PriceTier": ".entry",
    "Prices": ".entry",
    "ProviderSettings": ".entry",
    "Seat": ".picker",
    "Situation": ".picker",
    "Status": ".words",
    "Thinking": ".entry",
    "TokenEstimator": ".tokens",
    "Usage": ".usage",
    "bind": ".picker",
    "cost": ".pricing",
    "default_output_tokens": ".limits",
    "estimate_document": ".tokens",
    "estimate_text": ".tokens",
    "output_limit": ".limits",
    "parse_cap": ".pricing",
    "thinking_budget": ".limits",
    "worst_cost": ".pricing",
}

__all__ = [
    "DEFAULT_OUTPUT_TOKENS",
    "Accounting",
    "Catalog",
    "DefaultPicker",
    "Depth",
    "Grade",
    "Input",
    "Kind",
    "Limits",
    "ModelBinding",
    "ModelEntry",
    "ModelSpec",
    "OutputSize",
    "Picker",
    "PriceRow",
    "PriceTier",
    "Prices",
    "ProviderSettings",
    "Seat",
    "Situation",
    "Status",
    "Thinking",
    "TokenEstimator",
    "Usage",
    "bind",
    "cost",
    "default_output_tokens",
    "estimate_document",
    "estimate_text",
    "output_limit",
    "parse_cap",
    "thinking_budget",
    "worst_cost",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
