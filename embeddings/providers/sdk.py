"""What the providers over a vendor's SDK share: the request is carried by the same client as a chat call.

So authentication, rotation of keys, connections, first bytes, limit headers and the reading of errors are the chat
provider's own; its class is used as a carrier, and never asked to converse.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.entry import ModelEntry
from interlock.catalog.usage import Usage
from interlock.clients.abstract import Reply
from interlock.clients.asking import Ask, refuse_reserved
from interlock.clients.environment import ClientEnvironment
from interlock.clients.listing import ListedModel
from interlock.clients.providers.sdk import SdkChatClient
from interlock.errors import InterlockError, InvalidRequestError

from ..abstract import AbstractEmbeddingsClient, EmbeddingAnswer
from ..purpose import EmbeddingPurpose


class Carrier:
    """Stands before a chat provider's class and takes the conversation out of it."""

    def encode(self, ask: Ask) -> dict[str, Any]:
        raise InvalidRequestError("this client only embeds", sent=False)

    def read_reply(self, payload: Any, draft: Any) -> None:
        raise TypeError("an embedding is no chat answer")

    def read_event(self, event: Any, draft: Any) -> Sequence[Any]:
        raise TypeError("an embedding is no chat answer")


class SdkEmbeddingsClient(AbstractEmbeddingsClient):
    """A subclass names its `carrier` and owns the two sides of the wire: `encode` and `read`."""

    carrier: ClassVar[type[SdkChatClient]]
    #: What `provider_options` may not set.
    reserved: ClassVar[frozenset[str]] = frozenset({"model", "input"})
    tells_first_byte = True
    CREDENTIAL: ClassVar[Any] = None

    def __init__(self, entry: ModelEntry, environment: ClientEnvironment) -> None:
        super().__init__(entry, environment)
        self.carried = self.carrier(entry, environment)

    @abstractmethod
    def encode(self, texts: Sequence[str], purpose: EmbeddingPurpose) -> dict[str, Any]:
        """The request's body."""

    @abstractmethod
    def read(self, reply: Reply, texts: Sequence[str]) -> EmbeddingAnswer:
        """The answer. Whatever it stumbles over makes the answer malformed."""

    def usage(self, reply: Reply) -> Usage | None:
        """What the answer says was used; None where it does not."""
        return None

    async def send(self, texts: Sequence[str], purpose: EmbeddingPurpose) -> EmbeddingAnswer:
        reply = await self.carried.send(self._body(texts, purpose))
        usage: Usage | None = None
        try:
            usage = self.usage(reply)
            return self.read(reply, texts)
        except InterlockError:
            raise
        except Exception as error:
            problem = type(error).__name__
        raise self.carried.malformed(
            f"answered a body that is not of its wire ({problem})", request_id=reply.request_id, usage=usage
        )

    def _body(self, texts: Sequence[str], purpose: EmbeddingPurpose) -> bytes:
        options = self.entry.provider_options
        refuse_reserved((options,), self.reserved)
        wire = {**self.encode(texts, purpose), **options}
        return json.dumps(wire, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def ready(self) -> None:
        self.carried.ready()

    def failure(self, error: Exception) -> Exception:
        return self.carried.failure(error)

    def limits_in(self, error: Exception) -> Mapping[Dimension, ReportedLimit]:
        return self.carried.limits_in(error)

    async def list_models(self) -> Sequence[ListedModel]:
        """The account's models. By this key none of them converses."""
        return [replace(model, chat=False) for model in await self.carried.list_models()]

    async def aclose(self) -> None:
        await self.carried.aclose()


def rows_of(value: Any) -> list[Any]:
    """The vectors of an answer. TypeError where they are no list."""
    if not isinstance(value, list):
        raise TypeError("the vectors are no list")
    return value


def tokens_of(value: Any) -> Usage | None:
    """A count of input tokens as usage; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        return None
    return Usage(input_tokens=int(value), output_tokens=0)
