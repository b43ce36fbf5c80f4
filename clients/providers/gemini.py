"""`gemini`: Gemini over generateContent, with an API key or on Vertex AI.

On Vertex (`options: {vertex: true}`, or an entry whose credential is `google-cloud`) the credential names project and
location, and Google's application default credentials sign. The SDK's other transport, aiohttp, asks a second time on
its own when a connection breaks: the SDK is given an httpx2 client, which does not.

Further options of the provider: `api_version`, and `unsigned_calls`, the signature that stands for the one that another
provider's tool call has not.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import urlencode

import google.auth
import httpx2
from google import genai
from google.auth import exceptions as auth_errors
from google.genai import errors as genai_errors, types

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.entry import ModelEntry, ProviderSettings
from interlock.catalog.words import Depth
from interlock.credentials import ApiKey, Chain, VertexCredential
from interlock.errors import CredentialError, InvalidRequestError, TransientUpstreamError, UpstreamError

from ..abstract import AbstractLLMClient, Events
from ..answer import Draft
from ..asking import Ask, refuse_reserved
from ..conversation import (
    Conversation,
    DocumentBlock,
    ImageBlock,
    Message,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from ..environment import ClientEnvironment
from ..listing import MOST_PAGES, PAGE, ListedModel, NeededCredential, text_of
from ..response import Piece
from ..schema import GEMINI
from ..turns import refused
from ..writing import checked_url
from .gemini_reading import listed_in, read_chunk
from .sdk import CONNECT_TIMEOUT_S, SdkChatClient, as_json, part_of, tls
from .sse import json_events

#: The credential that names a project and a location. Ids that begin with it are of its kind.
GOOGLE_CLOUD = "google-cloud"
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
LEVELS: Mapping[Depth, str] = {
    Depth.IMMEDIATE: "minimal",
    Depth.QUICK: "low",
    Depth.STANDARD: "medium",
    Depth.THOROUGH: "high",
}
#: What `provider_options` may not set inside generationConfig, in either spelling that the wire takes.
RESERVED_SETTINGS = frozenset({"maxOutputTokens", "max_output_tokens", "candidateCount", "candidate_count"})
#: What of a request counts as input.
COUNTED = frozenset({"contents", "systemInstruction", "tools", "generationConfig"})
_MODES = {"auto": "AUTO", "any": "ANY", "none": "NONE"}


def _text(block: TextBlock) -> dict[str, Any]:
    return _signed({"text": block.text}, block.signature)


def _media(block: ImageBlock | DocumentBlock) -> dict[str, Any]:
    if block.data is None:
        return {"fileData": {"mimeType": block.media_type, "fileUri": block.url}}
    return {"inlineData": {"mimeType": block.media_type, "data": base64.b64encode(block.data).decode()}}


def _tool_use(block: ToolUseBlock) -> dict[str, Any]:
    return _signed({"functionCall": {"id": block.id, "name": block.name, "args": dict(block.input)}}, block.signature)


def _tool_result(block: ToolResultBlock) -> dict[str, Any]:
    """Its function's name is put in by the turn: the block knows only the call."""
    said = {"error" if block.is_error else "output": block.content}
    return {"functionResponse": {"id": block.tool_use_id, "response": said}}


def _thinking(block: ThinkingBlock) -> dict[str, Any] | None:
    """A signature goes back on the part it came with; thoughts without one are not wanted back."""
    if block.signature is None:
        return None
    return _signed({"text": block.text, **({"thought": True} if block.text else {})}, block.signature)


def _server_tool(block: ServerToolBlock) -> dict[str, Any]:
    """The part as it came, with the signature that stands in it."""
    return dict(block.payload)


def is_function(tool: Any) -> bool:
    return isinstance(tool, Mapping) and ("functionDeclarations" in tool or "function_declarations" in tool)


def _declared(tools: Any) -> list[Mapping[str, Any]]:
    """The functions of such tools, each of which holds several."""
    functions = [tool for tool in tools if is_function(tool)] if isinstance(tools, (list, tuple)) else []
    held = [tool.get("functionDeclarations", tool.get("function_declarations")) for tool in functions]
    return [one for some in held if isinstance(some, (list, tuple)) for one in some if isinstance(one, Mapping)]


def _signed(part: dict[str, Any], signature: str | None) -> dict[str, Any]:
    return part if signature is None else {**part, "thoughtSignature": signature}


class GeminiClient(SdkChatClient):
    """Gemini, from the Gemini API or Vertex AI."""

    encoders: ClassVar = {
        TextBlock: _text,
        ImageBlock: _media,
        DocumentBlock: _media,
        ToolUseBlock: _tool_use,
        ToolResultBlock: _tool_result,
        ThinkingBlock: _thinking,
        ServerToolBlock: _server_tool,
    }
    takes = frozenset({"temperature", "top_p", "seed", "stop", "tools", "tool_choice"})
    reserved = AbstractLLMClient.reserved | {
        "contents", "systemInstruction", "system_instruction", "generation_config", "toolConfig", "tool_config",
    }  # fmt: skip
    dialect = GEMINI
    signs_as: ClassVar[str | None] = "gemini"
    default_base_url: ClassVar[str | None] = "https://generativelanguage.googleapis.com"
    default_credential: ClassVar[str | None] = "gemini-api-key"
    credential_aliases = ("google-api-key",)

    _google: tuple[Any, str | None] | None = None  # application default credentials and their project

    def __init__(self, entry: ModelEntry, environment: ClientEnvironment) -> None:
        super().__init__(entry, environment)
        self._finding = asyncio.Lock()

    # Writing.

    def encode(self, ask: Ask) -> dict[str, Any]:
        wire: dict[str, Any] = {"contents": self._contents(ask.conversation), "generationConfig": _settings(ask)}
        if ask.system is not None:
            wire["systemInstruction"] = {"parts": [{"text": ask.system}]}
        if ask.tools:
            wire["tools"] = [{
                "functionDeclarations": [
                    {"name": tool.name, "description": tool.description, "parametersJsonSchema": dict(tool.schema)}
                    for tool in ask.tools
                ]
            }]  # fmt: skip
        chosen = ask.tool_choice
        if ask.tools and chosen is not None:
            named = {} if chosen in _MODES else {"allowedFunctionNames": [chosen]}
            wire["toolConfig"] = {"functionCallingConfig": {"mode": _MODES.get(chosen, "ANY"), **named}}
        return wire

    def with_options(self, wire: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """What is set inside generationConfig joins what stands there."""
        inner = options.get("generationConfig", {})
        if not isinstance(inner, Mapping):
            raise refused("provider_options sets generationConfig to something that is no object", model=self.entry.id)
        refuse_reserved((inner,), RESERVED_SETTINGS)
        return {**wire, **options, "generationConfig": {**wire["generationConfig"], **inner}}

    def with_tools(self, wire: dict[str, Any], own: Sequence[Any], given: Any) -> dict[str, Any]:
        """Beside functions the Gemini API runs tools of its own only where it may tell of them, and then it chooses
        freely by itself: the word for that is refused. Vertex AI knows no such setting."""
        theirs = [one.get("name") for one in _declared(given)]
        left = [one for one in _declared(own) if one["name"] not in theirs]
        wire = super().with_tools(wire, [{"functionDeclarations": left}] if left else (), given)
        functions = {is_function(tool) for tool in wire["tools"]}
        if self.on_vertex or functions != {True, False}:
            return wire
        config = {"includeServerSideToolInvocations": True, **wire.get("toolConfig", {})}
        if config.get("functionCallingConfig") == {"mode": _MODES["auto"]}:
            del config["functionCallingConfig"]
        return {**wire, "toolConfig": config}

    def _contents(self, conversation: Conversation) -> list[dict[str, Any]]:
        contents, names = [], dict[str, str]()
        for message in conversation.messages:
            parts = self._parts(message)
            for part in parts:
                result = part.get("functionResponse")
                if result is not None and "name" not in result:
                    part["functionResponse"] = {"id": result["id"], "name": names[result["id"]], **result}
            names = {block.id: block.name for block in message.blocks if isinstance(block, ToolUseBlock)}
            if parts:
                contents.append({"role": "model" if message.role == "assistant" else "user", "parts": parts})
        if not contents:
            raise refused("the conversation holds nothing that can be sent", model=self.entry.id)
        return contents

    def _parts(self, message: Message) -> list[dict[str, Any]]:
        parts = [part for block in message.blocks if (part := self.encoders[type(block)](block)) is not None]
        stand_in = self.environment.settings.options.get("unsigned_calls")
        calls = [part for part in parts if "functionCall" in part]
        if stand_in and calls and not any("thoughtSignature" in part for part in parts):
            calls[0]["thoughtSignature"] = stand_in  # of parallel calls the first one is signed
        return parts

    # Reading.

    def read_reply(self, payload: Any, draft: Draft) -> None:
        read_chunk(payload, draft, self._slipped)
        if not draft.complete:
            raise ValueError("the answer has no finish reason")

    def read_event(self, event: Any, draft: Draft) -> Sequence[Piece]:
        outer: Any = event[0] if isinstance(event, list) and event else event
        if outer.get("error"):
            raise self._said_no(None, outer, None)
        return read_chunk(outer, draft, self._slipped)

    def _slipped(self, reason: str, draft: Draft) -> Exception:
        known: dict[str, Any] = {
            "usage": draft.usage, "request_id": draft.request_id, "provider_code": reason.lower(),
        }  # fmt: skip
        if reason == "MISSING_THOUGHT_SIGNATURE":
            return InvalidRequestError(f"{self.where} misses a thought signature, for {self.entry.id}", **known)
        return self.malformed(f"ended the answer with {reason}", **known)

    def read_error(self, error: Exception) -> UpstreamError | None:
        if isinstance(error, genai_errors.APIError):
            response = error.response if isinstance(error.response, httpx2.Response) else None
            if response is not None and error.code < 300:
                return self._not_of_the_wire(response, None)
            return self._said_no(error.code, error.details, response)
        if isinstance(error, auth_errors.GoogleAuthError):
            told = f"{self.where}: {type(error).__name__}: {error}, for {self.entry.id}"
            if isinstance(error, auth_errors.TransportError) or error.retryable:
                return TransientUpstreamError(told, sent=False, provider_code="google_auth")
            return self._rotated(
                CredentialError(told, credential=self.credential_id, sent=False, provider_code="google_auth")
            )
        return super().read_error(error)

    def read_limits(self, headers: Mapping[str, str], *, now: datetime) -> dict[Dimension, ReportedLimit]:
        return {}  # Google states none

    # Authentication.

    @classmethod
    def check_credentials(cls, credential: str | None, settings: ProviderSettings, credentials: Chain) -> None:
        """Whether what a call needs is there, before the first one. Default credentials are not looked for."""
        needed = _needed_credential(credential, settings)
        if not needed.startswith(GOOGLE_CLOUD):
            aliases = cls.credential_aliases if needed == cls.default_credential else ()
            credentials.get(needed, ApiKey, aliases=aliases)
        elif not (credentials.get(needed, VertexCredential).location or settings.region):
            raise _no_location(needed, credentials)

    @classmethod
    def needed_credential(cls, credential: str | None, settings: ProviderSettings) -> NeededCredential:
        needed = _needed_credential(credential, settings)
        if needed.startswith(GOOGLE_CLOUD):
            return NeededCredential(id=needed, shape=VertexCredential)
        return NeededCredential(id=needed, aliases=cls.credential_aliases if needed == cls.default_credential else ())

    @property
    def on_vertex(self) -> bool:
        return self.credential_id.startswith(GOOGLE_CLOUD)

    @property
    def credential_id(self) -> str:
        settings = self.environment.settings
        return _needed_credential(self.entry.credential or settings.credential, settings)

    @property
    def base_url(self) -> str:
        if not self.on_vertex or self.entry.base_url or self.environment.settings.base_url:
            return super().base_url
        location = self._location()
        if location == "global":
            return "https://aiplatform.googleapis.com"
        if location in ("us", "eu"):
            return f"https://aiplatform.{location}.rep.googleapis.com"
        return f"https://{location}-aiplatform.googleapis.com"

    def _vertex(self) -> VertexCredential:
        return self.environment.credentials.get(self.credential_id, VertexCredential)

    def _location(self) -> str:
        location = self._vertex().location or self.environment.settings.region
        if not location:
            raise _no_location(self.credential_id, self.environment.credentials)
        return location

    def _key(self) -> str | None:
        if not self.on_vertex:
            return super()._key()
        found = self._vertex()
        return f"{found.project}/{self._location()}"

    @property
    def ambient(self) -> bool:
        return self.on_vertex

    def forget_ambient(self) -> None:
        self._google = None

    # Sending.

    def ready(self) -> None:
        self._key()
        if self.on_vertex:  # the SDK's client is made once Google's credentials are found
            checked_url(self.base_url, provider=self.entry.provider, model=self.entry.id)
        else:
            self._sdk()

    def make_sdk(self, *, api_key: str | None, base_url: str, http: httpx2.AsyncClient, timeout: httpx2.Timeout) -> Any:
        unused = httpx2.Client(verify=tls())  # or the SDK would make one of its own
        unused.close()
        version = self.environment.settings.options.get("api_version")
        options = types.HttpOptions(
            base_url=base_url,
            api_version=version or ("v1beta1" if self.on_vertex else "v1"),
            timeout=int(self.timeout_s * 1_000),
            httpx_client=unused,
            httpx_async_client=http,
            async_client_args={"ssl": tls()},
            retry_options=None,
        )
        if not self.on_vertex:
            return genai.Client(api_key=api_key, vertexai=False, http_options=options)
        assert self._google is not None
        credentials, project = self._google
        return genai.Client(
            vertexai=True, credentials=credentials, project=self._vertex().project or project,
            location=self._location(), http_options=options,
        )  # fmt: skip

    async def post(self, body: bytes) -> httpx2.Response:
        return await self._whole("generateContent", body)

    async def count_tokens(self, body: bytes) -> int | None:
        asked = part_of(body, COUNTED)
        if not self.on_vertex:  # here the request stands inside, and names its model
            asked = {"generateContentRequest": {"model": self._model_path(), **asked}}
        return self.read_count(await self._whole("countTokens", as_json(asked)), "totalTokens")

    async def _whole(self, method: str, body: bytes) -> httpx2.Response:
        response = await self._asked(method, body)
        try:
            await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response

    async def post_streamed(self, body: bytes) -> tuple[httpx2.Response, Events, Callable[[], Awaitable[None]]]:
        response = await self._asked("streamGenerateContent?alt=sse", body)
        return response, _Chunks(response), response.aclose

    async def list_models(self) -> Sequence[ListedModel]:
        key = "publisherModels" if self.on_vertex else "models"
        found: list[ListedModel] = []
        query = {"pageSize": str(PAGE)}
        for _ in range(MOST_PAGES):
            page = await self.get("publishers/google/models" if self.on_vertex else "models", query)
            token = text_of(page.get("nextPageToken"))
            found += listed_in({key: [], **page} if token or not page else page, key)  # Google leaves out what is empty
            if token is None:
                return found
            query = {"pageSize": str(PAGE), "pageToken": token}
        raise ValueError(f"its list of models has more than {MOST_PAGES} pages")

    async def get(self, path: str, query: Mapping[str, str]) -> Mapping[str, Any]:
        await self._find_google()
        api = self._sdk()._api_client
        request = api._build_request("get", f"{path}?{urlencode(query)}", {})
        request.timeout = httpx2.Timeout(self.timeout_s, connect=min(CONNECT_TIMEOUT_S, self.timeout_s))
        answer = await api._async_request(http_request=request, stream=True)
        response: httpx2.Response = answer.response_stream
        try:
            await response.aread()
        finally:
            await response.aclose()
        payload: Mapping[str, Any] = self._reply(response).payload
        return payload

    async def _asked(self, method: str, body: bytes) -> httpx2.Response:
        """One request through the SDK's own client of the API, which takes a body as it is and authenticates it. Its
        reader of event streams stumbles over comments and over `data:` without a space: the response is read here."""
        await self._find_google()
        api = self._sdk()._api_client
        request = api._build_request("post", f"{self._model_path()}:{method}", {})
        request.data = body
        request.timeout = httpx2.Timeout(self.timeout_s, connect=min(CONNECT_TIMEOUT_S, self.timeout_s))
        answer = await api._async_request(http_request=request, stream=True)
        response: httpx2.Response = answer.response_stream
        return response

    async def _find_google(self) -> None:
        """Application default credentials, looked for in a thread (that may ask a metadata server), once for all that
        wait for them."""
        if not self.on_vertex or self._google is not None:
            return
        async with self._finding:
            if self._google is None:
                self._google = await self._found()

    async def _found(self) -> tuple[Any, str | None]:
        credentials, project = await asyncio.to_thread(google.auth.default, scopes=SCOPES)
        if not (self._vertex().project or project):
            raise CredentialError(
                f"{self.entry.provider} on Vertex needs a project: set it in credential {self.credential_id}",
                credential=self.credential_id, sent=False,
            )  # fmt: skip
        return credentials, project

    def _model_path(self) -> str:
        model = self.entry.wire_model_id
        if model.startswith(("models/", "tunedModels/", "publishers/", "projects/")):
            return model
        return f"publishers/google/models/{model}" if self.on_vertex else f"models/{model}"


def _needed_credential(named: str | None, settings: ProviderSettings) -> str:
    """The id of the credential: one that begins with `google-cloud` is Vertex's, any other a key."""
    if settings.options.get("vertex") and not (named or "").startswith(GOOGLE_CLOUD):
        return GOOGLE_CLOUD
    return named or "gemini-api-key"


def _no_location(credential: str, credentials: Chain) -> CredentialError:
    places = credentials.describe(credential, VertexCredential)
    return CredentialError(
        f"gemini on Vertex needs a location (a region, or global), and none is guessed: set it in credential "
        f"{credential} ({places}) or as the provider's region",
        credential=credential, sent=False,
    )  # fmt: skip


class _Chunks:
    """The events of a response. The response is only touched when the first one is asked for."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._events: AsyncIterator[Any] | None = None

    async def __anext__(self) -> Any:
        if self._events is None:
            self._events = json_events(self._response.aiter_bytes())
        return await self._events.__anext__()


def _settings(ask: Ask) -> dict[str, Any]:
    options = ask.options
    settings: dict[str, Any] = {"maxOutputTokens": ask.max_output_tokens}
    named = {"temperature": options.temperature, "topP": options.top_p, "seed": options.seed}
    settings.update({name: value for name, value in named.items() if value is not None})
    if options.stop:
        settings["stopSequences"] = list(options.stop)
    thinking = _thinking_config(ask)
    if thinking is not None:
        settings["thinkingConfig"] = thinking
    if ask.structure is not None and ask.structure.mode == "native":
        settings["responseMimeType"] = "application/json"
        settings["responseJsonSchema"] = ask.structure.schema
    return settings


def _thinking_config(ask: Ask) -> dict[str, Any] | None:
    """How much it may think; its thoughts are asked for where thinking was."""
    mode, tokens = ask.entry.thinking.mode, ask.thinking_tokens
    shown = {"includeThoughts": True} if tokens and ask.depth is not Depth.IMMEDIATE else {}
    if mode == "budget":
        return {"thinkingBudget": tokens, **shown}
    if mode == "adaptive":
        return {"thinkingBudget": -1 if tokens else 0, **shown}
    if mode == "effort":
        return {"thinkingLevel": LEVELS[ask.depth], **shown}
    return None
