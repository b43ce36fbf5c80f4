"""`anthropic-bedrock-mantle`: Claude on Amazon Bedrock's Mantle endpoint: Anthropic's wire, AWS's credentials.

How long Mantle keeps data is settled by the project that a call names, so every call names the right one: a model that
is served only where data is shared goes to the deployment's data-sharing ("lax") project, and only if the deployment
allows that; every other goes to its zero-retention ("strict") one. No project configured: none is named, and the
account's own setting holds.
"""

from __future__ import annotations

from typing import Any, ClassVar

import httpx2
from anthropic.lib.bedrock import AsyncAnthropicBedrockMantle

from interlock.errors import CredentialError, UpstreamError

from .anthropic_direct import AnthropicDirectClient
from .aws import AwsChatClient

#: A header of any other name is ignored without a word.
PROJECT_HEADER = "anthropic-workspace-id"


class AnthropicBedrockMantleClient(AwsChatClient, AnthropicDirectClient):
    """Claude on Bedrock's Mantle endpoint."""

    request_id_header = "request-id"
    default_base_url: ClassVar[str | None] = None
    default_credential: ClassVar[str | None] = "aws"
    endpoint = "https://bedrock-mantle.{region}.api.aws/anthropic"

    @property
    def project(self) -> str | None:
        """The project that calls of this model are accounted to."""
        policy = self.environment.data_policy
        return policy.mantle_lax_project if self.entry.data_sharing_only else policy.mantle_strict_project

    def make_sdk(self, *, api_key: str | None, base_url: str, http: httpx2.AsyncClient, timeout: httpx2.Timeout) -> Any:
        made = self.sdk_of(AsyncAnthropicBedrockMantle, base_url=base_url, http=http, timeout=timeout)
        made._use_sigv4 = made.api_key is None
        return made

    def headers(self) -> dict[str, str]:
        return {} if self.project is None else {PROJECT_HEADER: self.project}

    def _said_no(self, status: int | None, body: Any, response: httpx2.Response | None) -> UpstreamError:
        error = super()._said_no(status, body, response)
        if "data retention mode" not in str(error):
            return error
        return CredentialError(
            f"{error}; {self._which_project()}",
            credential=self.credential_id,
            status=error.status,
            request_id=error.request_id,
            provider_code="data_retention_mode",
        )

    def _which_project(self) -> str:
        if self.entry.data_sharing_only:
            return "name a project that shares data: ModelSettings(mantle_lax_project=..., allow_data_sharing=True)"
        return (
            f"where {self.entry.id} is served only under data sharing, write `data_sharing_only: true` at its entry; "
            "it then goes to ModelSettings(mantle_lax_project=...)"
        )
