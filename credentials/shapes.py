"""What a credential is made of, per kind. Frozen; secrets are `SecretStr`, so a repr or a dump never shows one.

Each field says under which names a store may hold it. A shape that is `optional` may be absent altogether: its provider
then uses the cloud's own way of finding one.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, SecretStr, model_validator


class Credential(BaseModel):
    """A typed credential. Subclass it for a provider of your own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: Field -> further names of it in a store, after the field's own.
    names: ClassVar[dict[str, tuple[str, ...]]] = {}
    #: The field that the bare credential id stands for, where there is one.
    bare: ClassVar[str | None] = None
    #: Fields that say who is calling. All of them come from the one store that has any.
    identity: ClassVar[frozenset[str]] = frozenset()
    #: True: with no record anywhere the empty credential is right.
    optional: ClassVar[bool] = False


class ApiKey(Credential):
    """One secret. `anthropic-api-key` is the variable `ANTHROPIC_API_KEY`."""

    bare = "key"
    identity = frozenset({"key"})

    key: SecretStr


class AwsCredential(Credential):
    """AWS, for Bedrock. Empty means AWS's own chain. The region is never guessed: None is an error at the first call.

    The id `aws` gives the usual variables; `aws-prod` reads `AWS_PROD_ACCESS_KEY_ID` and so on. `AWS_REGION` comes
    before `AWS_DEFAULT_REGION`.
    """

    names = {"region": ("default_region",)}
    identity = frozenset({"access_key_id", "secret_access_key", "session_token", "profile"})
    optional = True

    access_key_id: SecretStr | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    region: str | None = None
    profile: str | None = None

    @model_validator(mode="after")
    def _key_and_secret(self) -> AwsCredential:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            there, missing = ("access_key_id", "secret_access_key")
            if self.access_key_id is None:
                there, missing = missing, there
            raise ValueError(f"has {there} but no {missing}")
        if self.session_token is not None and self.access_key_id is None:
            raise ValueError("has session_token but no access_key_id")
        return self


class VertexCredential(Credential):
    """Google Vertex AI. Empty means application default credentials. `google-cloud` reads the usual variables."""

    identity = frozenset({"project"})
    optional = True

    project: str | None = None
    location: str | None = None
