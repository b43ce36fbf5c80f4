"""Bedrock's Mantle endpoint: Anthropic's messages and server-sent events, AWS's credentials, projects and quotas.

The project stands in the header `anthropic-workspace-id`; a header of another name is ignored without a word. A model
that is served only where data is shared is refused in every project that does not share.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar

from ..buckets import Charge
from ..exchange import Ask
from .anthropic import AnthropicWire
from .anthropic_reading import Reader
from .wire import Target, WireError

_PREFIXED = re.compile(r"(us|eu|apac|jp|au|ca|global|us-gov)\.")


class MantleWire(AnthropicWire):
    """`sharing` are the projects that share their data, `shared_only` the models served only to them."""

    name: ClassVar[str] = "mantle"

    def __init__(
        self,
        reader: Reader,
        wall: Callable[[], datetime],
        *,
        sharing: frozenset[str],
        shared_only: frozenset[str],
    ) -> None:
        super().__init__(reader, wall)
        self._sharing = sharing
        self._shared_only = shared_only

    def read(self, body: dict[str, Any], target: Target) -> Ask:
        ask = super().read(body, target)
        if _PREFIXED.match(ask.model):
            raise self.unknown_model(ask.model)  # ids are bare: no region's prefix
        project = target.headers.get("anthropic-workspace-id")
        if ask.model in self._shared_only and project not in self._sharing:
            raise WireError(
                400,
                f"The model {ask.model} requires the data retention mode provider_data_share, which is not the "
                "data retention mode of this project.",
            )
        return ask

    def start_charge(self, ask: Ask, input_tokens: int, cached_tokens: int) -> Charge:
        """Input and the whole output limit against the input limit; what the cache gives is free."""
        tokens = input_tokens - cached_tokens + (ask.max_output_tokens or 0)
        return Charge(1, tokens, tokens, 0)

    def settle_charge(self, ask: Ask, output_tokens: int, cached_tokens: int) -> Charge:
        """The output limit is given back to the input limit; output was charged as it was made."""
        return Charge(0, -(ask.max_output_tokens or 0), -(ask.max_output_tokens or 0), 0)
