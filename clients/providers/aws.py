"""What the Bedrock providers share: who calls (a key pair, a profile, AWS's own chain, or a bearer token), from which
region, and how a request is signed.

A region is never guessed: it comes from the provider's settings in the catalog, or with the credential. A credential
whose id ends in `bearer-token-bedrock` is a Bedrock API key; any other is an AWS credential, and an empty one means
AWS's own chain. Nothing else is read from the environment.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import quote

import httpx2
from botocore.eventstream import ParserError
from botocore.exceptions import BotoCoreError

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.entry import ProviderSettings
from interlock.credentials import ApiKey, AwsCredential, Chain
from interlock.credentials.stores import variable
from interlock.errors import CredentialError, UpstreamError

from ..listing import NeededCredential
from .sdk import CONNECT_TIMEOUT_S, SHOWN, SdkChatClient, read_json

BEARER = "bearer-token-bedrock"
#: What a profile of several regions puts before a model's own id.
_PROFILE = re.compile(r"^(us|eu|apac|jp|au|ca|global|us-gov)\.")
_OF_THE_KEY = frozenset({"expiredtokenexception", "unrecognizedclientexception", "invalidsignatureexception"})


class AwsChatClient(SdkChatClient):
    """A provider on AWS."""

    CREDENTIAL = AwsCredential
    default_credential: ClassVar[str | None] = "aws"
    request_id_header = "x-amzn-requestid"
    _session: Any = None  # boto3's, where AWS's own chain is asked
    #: The endpoint of a region.
    endpoint: ClassVar[str] = "https://bedrock-runtime.{region}.amazonaws.com"

    @classmethod
    def check_credentials(cls, credential: str | None, settings: ProviderSettings, credentials: Chain) -> None:
        """Raise CredentialError where a call could not even be signed. Whether AWS's own chain has anything is seen at
        the first call: to ask it may take seconds."""
        found = AwsCredential()
        if (credential or "").endswith(BEARER):
            credentials.get(credential or "", ApiKey)
        else:
            found = credentials.get(credential or cls.default_credential or "", AwsCredential)
        if not (settings.region or found.region):
            raise _no_region(credential or cls.default_credential or "")

    @classmethod
    def needed_credential(cls, credential: str | None, settings: ProviderSettings) -> NeededCredential:
        needed = credential or cls.default_credential or ""
        return NeededCredential(id=needed, shape=ApiKey if needed.endswith(BEARER) else AwsCredential)

    @property
    def has_bearer(self) -> bool:
        return (self.credential_id or "").endswith(BEARER)

    @property
    def base_url(self) -> str:
        url = self.entry.base_url or self.environment.settings.base_url
        return url or self.endpoint.format(region=self.region())

    def aws(self) -> AwsCredential:
        """The credential; empty where AWS's own chain is to be used."""
        if self.has_bearer:
            return AwsCredential()
        assert self.credential_id is not None
        return self.environment.credentials.get(self.credential_id, AwsCredential)

    def bearer(self) -> str | None:
        if not self.has_bearer:
            return None
        assert self.credential_id is not None
        return self.environment.credentials.get(self.credential_id, ApiKey).key.get_secret_value()

    def region(self) -> str:
        region = self.environment.settings.region or self.aws().region
        if not region:
            raise _no_region(self.credential_id or "")
        return region

    def _key(self) -> str | None:
        """Whoever calls, as one text: when it changes, the SDK's client is made anew."""
        return "\0".join([part or "" for part in (self.bearer(), self.region(), *self.key_pair().values())])

    def key_pair(self) -> dict[str, str | None]:
        """The credential by the names that the anthropic SDK has for its parts."""
        found = self.aws()
        secrets = {
            "aws_access_key": found.access_key_id,
            "aws_secret_key": found.secret_access_key,
            "aws_session_token": found.session_token,
        }
        shown = {name: None if secret is None else secret.get_secret_value() for name, secret in secrets.items()}
        return {**shown, "aws_profile": found.profile}

    def sdk_of(self, class_: type[Any], *, base_url: str, http: httpx2.AsyncClient, timeout: httpx2.Timeout) -> Any:
        """One of the anthropic SDK's clients for AWS, which calls as this credential and as nobody else."""
        made = class_(
            api_key="none",  # without one the SDK takes whatever the environment holds
            aws_region=self.region(),
            base_url=base_url,
            http_client=http,
            timeout=timeout,
            max_retries=0,
            open_telemetry=False,
        )
        made.api_key = self.bearer()
        for name, value in self.key_pair().items():
            setattr(made, name, value)
        return made

    def read_limits(self, headers: Mapping[str, str], *, now: datetime) -> dict[Dimension, ReportedLimit]:
        return {}  # AWS states none

    @property
    def counted_path(self) -> str:
        """Where tokens are counted: only under the model's own id, not under that of a region's profile."""
        model = quote(_PROFILE.sub("", self.entry.wire_model_id), safe="")
        return f"/model/{model}/count-tokens"

    async def get_signed(self, url: str) -> Mapping[str, Any]:
        """What stands at an address of AWS: one signed request, and its body."""
        self._http = self._http or self._make_http()
        headers = await signed_headers(self, url=url, headers={}, body=b"", service="bedrock", method="GET")
        timeout = httpx2.Timeout(self.timeout_s, connect=min(CONNECT_TIMEOUT_S, self.timeout_s))
        response = await self._http.get(url, headers=headers, timeout=timeout)
        if response.status_code >= 300:
            raise self._said_no(response.status_code, read_json(response.content) or response.text[:SHOWN], response)
        payload: Mapping[str, Any] = self._reply(response).payload
        return payload

    @property
    def ambient(self) -> bool:
        return not self.has_bearer and self.aws().access_key_id is None

    def forget_ambient(self) -> None:
        self._session = None
        # Anthropic's SDK keeps what AWS's chain gave it for as long as the process lives.
        kept: Any = getattr(sys.modules.get("anthropic.lib.aws._auth"), "_get_session", None)
        if kept is not None:
            kept.cache_clear()

    def frozen(self, found: AwsCredential) -> Any:
        """The keys a request is signed with. AWS's own chain is asked once: what it gives renews itself."""
        from boto3 import Session
        from botocore.credentials import Credentials
        from botocore.exceptions import NoCredentialsError

        secret, token = found.secret_access_key, found.session_token
        if found.access_key_id is not None and secret is not None:
            shown = None if token is None else token.get_secret_value()
            return Credentials(found.access_key_id.get_secret_value(), secret.get_secret_value(), shown)
        session = self._session
        if session is None:
            session = self._session = Session(profile_name=found.profile)
        credentials = session.get_credentials()
        if credentials is None:
            raise NoCredentialsError()
        return credentials.get_frozen_credentials()

    def may_be_rotated(self, error: CredentialError) -> bool:
        """AWS answers 403 to a key that is unknown, or over, too."""
        return error.status != 403 or error.provider_code in _OF_THE_KEY

    def read_error(self, error: Exception) -> UpstreamError | None:
        unfound = isinstance(error, RuntimeError) and "resolve AWS credentials" in str(error)
        if unfound or isinstance(error, BotoCoreError):
            why = "AWS finds no credentials" if unfound else f"{type(error).__name__}: {error}"
            found = CredentialError(
                f"{self.where}: {why} (credential {self.credential_id!r}, then AWS's own chain), for {self.entry.id}",
                credential=self.credential_id,
                sent=False,
                provider_code=type(error).__name__,
            )
            return self._rotated(found)
        if isinstance(error, ParserError):
            return self.malformed(f"sent a frame that is none of AWS's event stream ({type(error).__name__})")
        return super().read_error(error)


def _no_region(credential: str) -> CredentialError:
    return CredentialError(
        f"no AWS region is set, and none is guessed: set {variable(credential, 'region')}, or write `region` at the "
        "provider in the catalog",
        credential=credential,
        remedy=f"set {variable(credential, 'region')}",
        sent=False,
    )


async def signed_headers(
    client: AwsChatClient, *, url: str, headers: Mapping[str, str], body: bytes, service: str, method: str = "POST"
) -> dict[str, str]:
    """A request's headers, signed over exactly these bytes. In a thread where AWS's own chain is asked: that may ask a
    metadata server."""
    bearer = client.bearer()
    if bearer is not None:
        return {**headers, "authorization": f"Bearer {bearer}"}
    found, region = client.aws(), client.region()

    def sign() -> dict[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        request = AWSRequest(method=method, url=url, headers=dict(headers), data=body)
        SigV4Auth(client.frozen(found), service, region).add_auth(request)
        return {name.lower(): str(value) for name, value in request.headers.items()}

    return sign() if found.access_key_id is not None else await asyncio.to_thread(sign)
