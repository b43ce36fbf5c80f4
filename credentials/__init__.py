"""Where secrets come from: one id per credential, several stores.

    shapes      what a credential is made of: ApiKey, AwsCredential, VertexCredential
    stores      the environment, a file of mode 0600
    keyring     the operating system's keyring (extra `keyring`)
    aws_secrets AWS Secrets Manager (extra `aws`)
    chain       several stores as one, re-read every few minutes and after a 401
    redaction   keeps secrets out of what is stored, logged and raised

Everyone may import it; it imports nothing of Interlock but `interlock.errors`.
"""

from .aws_secrets import AwsSecretsManagerStore
from .chain import Chain
from .keyring import KeyringStore
from .redaction import Redactor
from .shapes import ApiKey, AwsCredential, Credential, VertexCredential
from .stores import EnvironmentStore, FileStore, Found, Store

__all__ = [
    "ApiKey",
    "AwsCredential",
    "AwsSecretsManagerStore",
    "Chain",
    "Credential",
    "EnvironmentStore",
    "FileStore",
    "Found",
    "KeyringStore",
    "Redactor",
    "Store",
    "VertexCredential",
]
