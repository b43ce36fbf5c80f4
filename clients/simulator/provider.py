"""SimulatedProvider: settings, script and log around the app, and the server's lifetime."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from .app import SimulatedApp
from .buckets import PublishedLimits
from .counting import count_tokens
from .exchange import Answer
from .log import Goodput, RequestLog, SeenRequest, measure
from .script import Step
from .server import LoopbackServer, ThreadedServer
from .settings import EVERY_MODEL, Serving
from .speaking import wires

NO_SAMPLING = frozenset({"temperature", "top_p", "top_k"})


def _wall() -> datetime:
    return datetime.now(UTC)


class SimulatedProvider:
    """A model provider on loopback that speaks Anthropic Messages (Bedrock's Mantle too), OpenAI Responses and chat
    completions, Bedrock Converse and InvokeModel, whole and streamed, Gemini, the embeddings of OpenAI, Titan, Cohere
    and Gemini, and the decisions of TypeSafe, OpenRouter and OpenAI; each under its own paths.

    limits: per model as it is named on the wire, "*" for each model not named; one PublishedLimits stands for "*".
        None has no limits.
    serves: the share of its published rates at which it really refills. Headers always tell the published story.
    answer: makes the answer of each request that no step answers: an Answer, text, or a JSON value; it may be async.
        None: answers from the request's own text that obey its schema or forced tool.
    latency_s: seconds before an answer, or a function of the request. tokens_per_s: how fast output comes after that.
    seed: ids, and what answers take from nowhere else, are the same for the same seed and order of requests.
    now, sleep: the clock of limits, log and pauses. wall: the time of day, with its zone, for headers and answers.
    headers: False leaves the rate limit headers out; Retry-After stays.
    models: the models there are; None: every one. context_window: tokens of input taken at most.
    keys: the API keys it knows; None: any. A request without one is refused.
    anthropic_refuses: parameters the Anthropic wire does not take; the current API takes no sampling parameters.
    strict_schemas: refuse schemas that the real providers refuse.
    automatic_caching: OpenAI Responses and Gemini cache prompts by themselves, as the real ones do; marks always count.
    bedrock_burndown: tokens of a Bedrock limit that one token of output costs.
    mantle_sharing: the Mantle projects that share their data. mantle_shared_only: models served to no others.
    decision_decimals: how probabilities of decisions are rounded; None: they are not.
    count_tokens: how many tokens a text is taken for.
    keep_requests: how many requests the log keeps; None: all.

        async with SimulatedProvider() as provider:
            client = AsyncAnthropic(api_key="any", base_url=provider.anthropic_url)

        with SimulatedProvider().in_thread() as provider: ...
    """

    def __init__(
        self,
        *,
        limits: Mapping[str, PublishedLimits] | PublishedLimits | None = None,
        serves: float = 1.0,
        answer: Callable[[SeenRequest], Answer | str | Any] | None = None,
        latency_s: float | Callable[[SeenRequest], float] = 0.0,
        tokens_per_s: float | None = None,
        seed: int = 0,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        wall: Callable[[], datetime] = _wall,
        headers: bool = True,
        models: Iterable[str] | None = None,
        context_window: int | None = None,
        keys: Iterable[str] | None = None,
        anthropic_refuses: Iterable[str] = NO_SAMPLING,
        openai_refuses: Iterable[str] = (),
        strict_schemas: bool = True,
        automatic_caching: bool = False,
        bedrock_burndown: float = 1.0,
        mantle_sharing: Iterable[str] = (),
        mantle_shared_only: Iterable[str] = (),
        decision_decimals: int | None = 2,
        count_tokens: Callable[[str], int] = count_tokens,
        keep_requests: int | None = None,
    ) -> None:
        _require_share(serves)
        if tokens_per_s is not None and tokens_per_s <= 0:
            raise ValueError(f"tokens_per_s must be above 0, not {tokens_per_s!r}")
        if isinstance(limits, PublishedLimits):
            limits = {EVERY_MODEL: limits}
        self._serving = Serving(
            limits=dict(limits or {}),
            serves=serves,
            answer=answer,
            latency_s=latency_s,
            tokens_per_s=tokens_per_s,
            seed=seed,
            now=now,
            sleep=sleep,
            wall=wall,
            headers=headers,
            count=count_tokens,
            models=tuple(models) if models is not None else None,
            context_window=context_window,
            keys=frozenset(keys) if keys is not None else None,
            log=RequestLog(keep_requests),
        )
        spoken = wires(
            seed=seed,
            wall=wall,
            anthropic_refuses=frozenset(anthropic_refuses),
            openai_refuses=frozenset(openai_refuses),
            strict_schemas=strict_schemas,
            automatic_caching=automatic_caching,
            burndown=bedrock_burndown,
            sharing=frozenset(mantle_sharing),
            shared_only=frozenset(mantle_shared_only),
            decision_decimals=decision_decimals,
            count=count_tokens,
        )
        self._app = SimulatedApp(self._serving, spoken)
        self._server: LoopbackServer | ThreadedServer | None = None
        self._started_s = now()

    @property
    def app(self) -> SimulatedApp:
        """The ASGI app, to be mounted elsewhere or driven without a socket (httpx2.ASGITransport)."""
        return self._app

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT`, while it serves."""
        port = self._server.port if self._server is not None else None
        if port is None:
            raise RuntimeError("the simulated provider is not serving: enter it, or its in_thread()")
        return f"http://127.0.0.1:{port}"

    @property
    def anthropic_url(self) -> str:
        """The base URL for the Anthropic SDK."""
        return self.base_url

    @property
    def openai_url(self) -> str:
        """The base URL for the OpenAI SDK."""
        return f"{self.base_url}/v1"

    @property
    def systemone_url(self) -> str:
        """The base URL for the TypeSafe SDK."""
        return f"{self.base_url}/typesafe"

    @property
    def openrouter_url(self) -> str:
        """The base URL for OpenRouter's decisions: `/alpha/decisions` stands under it."""
        return f"{self.base_url}/api"

    @property
    def bedrock_url(self) -> str:
        """The endpoint URL for boto3 (`bedrock-runtime` and `bedrock`), the base URL for AnthropicBedrock."""
        return self.base_url

    @property
    def mantle_url(self) -> str:
        """The base URL for AnthropicBedrockMantle."""
        return f"{self.base_url}/anthropic"

    @property
    def gemini_url(self) -> str:
        """The base URL of google-genai's HttpOptions, for an API key and for Vertex AI."""
        return self.base_url

    async def __aenter__(self) -> SimulatedProvider:
        server = LoopbackServer(self._app)
        self._claim(server)
        try:
            await server.start()
        except BaseException:
            self._server = None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if isinstance(server, LoopbackServer):
            await server.stop()

    @contextmanager
    def in_thread(self) -> Iterator[SimulatedProvider]:
        """Serve from a thread and loop of its own, for programs that are synchronous or block their loop."""
        server = ThreadedServer(self._app)
        self._claim(server)
        try:
            server.start()
            yield self
        finally:
            self._server = None
            server.stop()

    def _claim(self, server: LoopbackServer | ThreadedServer) -> None:
        if self._server is not None:
            raise RuntimeError("the simulated provider is serving already")
        self._server = server

    def script(self, *steps: Step) -> None:
        """Append steps: each is used up by the next request it matches."""
        self._serving.script.add(steps)

    def always(self, *steps: Step) -> None:
        """What happens to a request when no scripted step matches: the first of these that does."""
        self._serving.script.always(steps)

    def script_counts(self, *steps: Step) -> None:
        """Steps for the next requests that only count tokens: a failure, a body, or silence."""
        self._serving.counts.add(steps)

    def publish(self, model: str, limits: PublishedLimits) -> None:
        """Set a model's limits, as it is named on the wire. Where they change, its buckets begin full."""
        serving = self._serving
        if serving.limits.get(model) != limits:
            serving.limits = {**serving.limits, model: limits}
            serving.meters.pop(model, None)

    @property
    def steps_left(self) -> int:
        """Scripted steps that no request has used yet."""
        return len(self._serving.script)

    def clear(self) -> None:
        """Forget script and log. Limits, cache and numbering go on."""
        self._serving.script.clear()
        self._serving.counts.clear()
        self._serving.log.clear()

    @property
    def serves(self) -> float:
        """The share of its published rates at which it refills; may be set while it serves."""
        return self._serving.serves

    @serves.setter
    def serves(self, share: float) -> None:
        _require_share(share)
        self._serving.serves = share
        for meter in self._serving.meters.values():
            meter.serve(share, self._serving.now())

    @property
    def requests(self) -> list[SeenRequest]:
        """Every request seen, in order, those of clients that left included."""
        return list(self._serving.log.entries)

    async def idle(self) -> None:
        """Wait until no request is under way: those of clients that have left are logged by then."""
        await asyncio.wrap_future(self._serving.log.idle())

    @property
    def count(self) -> int:
        """How many chat requests were seen."""
        return self._serving.log.chats

    @property
    def refused(self) -> int:
        """How many requests the provider's own limits refused (429). Scripted ones are not counted."""
        return self._serving.log.refused

    def goodput(
        self, model: str | None = None, *, since_s: float | None = None, until_s: float | None = None
    ) -> Goodput:
        """What was served of `model` (None: the one model with limits, else all) between two times of its clock,
        against what it would really have served.

        Without `since_s` the window begins with the provider and its full buckets count as served; a window that
        begins later is taken to begin with them empty.
        """
        serving, log = self._serving, self._serving.log
        until = serving.now() if until_s is None else until_s
        since = self._started_s if since_s is None else since_s
        if log.dropped and (since_s is None or log.entries[0].at_s > since_s):
            raise ValueError("the log has dropped requests of that window: set keep_requests higher, or since_s later")
        if model is None and len(serving.meters) == 1:
            model = next(iter(serving.meters))
        meter = serving.meter(model) if model is not None else None
        entries = [entry for entry in log.entries if model in (None, entry.model)]
        return measure(
            entries,
            meter.served_rates() if meter is not None else {},
            since_s=since,
            until_s=until,
            from_full=since_s is None,
        )


def _require_share(serves: float) -> None:
    if not 0 < serves <= 1:
        raise ValueError(f"serves is a share of what is published, above 0 and at most 1, not {serves!r}")
