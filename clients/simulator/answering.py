"""One chat request's way: read, refused or metered, answered whole or as a stream, settled, logged."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .answers import as_answer
from .buckets import Meter
from .connection import ClientLeftError, Connection
from .deciding import answer_to
from .exchange import UNSET, Answer, Ask, Reply
from .filling import UnfillableSchemaError
from .framing import Framer
from .log import SeenRequest
from .replying import Numbering, make_reply
from .script import Fault, Framing, Raw, Step
from .wires.wire import CountsInHeaders, Event, Headers, Refusing, Target, Wire, WireError, encode

if TYPE_CHECKING:
    from .settings import Serving

_JSON = (b"content-type", b"application/json")
_log = logging.getLogger(__name__)
_PLAIN = Step(name="plain")


class Answering:
    """Answers one request. `entry` is its line in the log, filled in on the way."""

    def __init__(
        self,
        serving: Serving,
        wire: Wire,
        target: Target,
        connection: Connection,
        entry: SeenRequest,
        key: str | None,
    ) -> None:
        self._key = key
        self._serving = serving
        self._wire = wire
        self._target = target
        self._connection = connection
        self._entry = entry
        self._request_id = f"req_sim{serving.seed:04x}{entry.number:012x}"

    async def run(self, body: dict[str, Any]) -> None:
        try:
            ask, input_tokens = self.read(body)
        except WireError as error:
            await self.refuse_error(error)
            return
        step = self._serving.script.next(ask.model, self._wire.name) or _PLAIN
        self._entry.step = step.name if step is not _PLAIN else None
        if step.failure is not None:
            await self._fail(step, ask)
        elif step.raw is not None:
            await self._raw(step.raw)
        else:
            await self._meter(ask, input_tokens, step)

    def read(self, body: dict[str, Any]) -> tuple[Ask, int]:
        """The request as read, and its input tokens. Raises WireError."""
        serving, entry = self._serving, self._entry
        serving.check_key(self._wire, self._key)
        try:
            ask = self._wire.read(body, self._target)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # A real provider validates the whole body first: a wrong shape is the caller's mistake, never a 500.
            raise WireError(400, f"The request body is malformed: {error}") from error
        entry.ask, entry.streamed = ask, ask.streamed
        if serving.models is not None and ask.model not in serving.models:
            raise self._wire.unknown_model(ask.model)
        input_tokens = serving.count(ask.prompt) + ask.extra_input_tokens
        entry.input_tokens = input_tokens
        serving.check_window(self._wire, input_tokens)
        return ask, input_tokens

    async def count(self, body: dict[str, Any]) -> None:
        """Answer with the number of tokens alone. Raises WireError."""
        try:
            inner = self._wire.counted_body(body, self._target)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise WireError(400, f"The request body is malformed: {error}") from error
        ask, tokens = self.read(inner)
        step = self._serving.counts.next(ask.model, self._wire.name) or _PLAIN
        if step.failure is not None:
            await self._fail(step, ask)
        elif step.raw is not None:
            await self._raw(step.raw)
        elif step.fault is not None:
            await self._connection.until_left()
            raise ClientLeftError
        else:
            await self.give(self._wire.counted(tokens))

    async def refuse(self, refusing: Refusing) -> None:
        """An error response in the wire's words."""
        await self._respond(refusing.status, refusing.headers, encode(refusing.body))

    async def refuse_error(self, error: WireError) -> None:
        self._entry.error = error.message
        await self.refuse(self._wire.error(error, self._request_id))

    async def give(self, body: dict[str, Any]) -> None:
        """A plain response that is no chat answer."""
        await self._respond(200, {}, encode(body))

    async def _fail(self, step: Step, ask: Ask) -> None:
        failure = step.failure
        assert failure is not None
        if failure.body is not None and failure.status is not None:
            headers = {**failure.headers, "content-type": failure.content_type}
            await self._respond(failure.status, headers, failure.body)
        else:
            await self.refuse(self._wire.failure(failure, ask, self._request_id))

    async def _respond(self, status: int, more: Mapping[str, str], body: bytes) -> None:
        headers = self._headers(self._entry.model)
        extra = [(name.lower().encode(), value.encode("latin-1")) for name, value in more.items()]
        if not any(name == b"content-type" for name, _ in extra):
            headers.append(_JSON)
        self._entry.status = status
        await self._connection.respond(status, headers + extra, body)

    def _headers(self, model: str) -> Headers:
        serving = self._serving
        meter = serving.meter(model) if serving.headers else None
        levels = meter.published(serving.now()) if meter is not None else {}
        return self._wire.headers(self._request_id, levels)

    async def _raw(self, raw: Raw) -> None:
        connection = self._connection
        headers = self._headers(self._entry.model)
        if raw.content_type is None:
            headers += self._wire.stream_headers
        else:
            headers.append((b"content-type", raw.content_type.encode("latin-1")))
        headers.extend((name.lower().encode(), value.encode("latin-1")) for name, value in raw.headers.items())
        self._entry.status = raw.status
        parts = [self._wire.scripted(part) for part in raw.parts]
        if len(parts) == 1 and raw.content_type is not None and not raw.content_type.startswith("text/event-stream"):
            await connection.respond(raw.status, headers, parts[0])
            return
        await connection.start(raw.status, headers)
        for part in parts:
            await connection.write(part)
            await connection.breathe()
        if raw.ending == "stall":
            await connection.until_left()
            raise ClientLeftError
        if raw.ending != "clean":
            self._entry.cut = raw.ending
        await (connection.end() if raw.ending == "clean" else connection.abort(raw.ending))

    async def _meter(self, ask: Ask, input_tokens: int, step: Step) -> None:
        """Charge the limits, and answer if they allow it."""
        serving = self._serving
        now = serving.now()
        cache = serving.cache.use(ask, now, serving.count)
        charge = self._wire.start_charge(ask, input_tokens, cache.read_tokens)
        meter = serving.meter(ask.model)
        refused = meter.admit(charge, now) if meter is not None else None
        if refused is not None and meter is not None:
            if step is not _PLAIN:
                serving.script.put_back(step)
                self._entry.step = None
            if self._wire.refused_counts and refused.dimension != "requests":
                meter.take(charge._replace(tokens=0, input_tokens=0, output_tokens=0), now)
            self._entry.refused_by = refused.dimension
            serving.log.refused += 1
            await self.refuse(self._wire.refused(refused, ask, self._request_id))
            return
        settled = _Settlement(self._wire, ask, cache.read_tokens, meter, serving, self._entry)
        try:
            await self._pause(serving.latency_of(self._entry) + step.delay_s)
            reply = make_reply(
                ask,
                await self._answer(ask, step),
                truncated=step.is_truncated,
                halved=step.is_truncated and step.reply is None,
                cache=cache,
                input_tokens=input_tokens,
                count=serving.count,
                numbering=Numbering(
                    seed=serving.seed, number=self._entry.number, created_s=int(serving.wall().timestamp())
                ),
                prefixes=self._wire.id_prefixes,
            )
            self._entry.input_tokens = reply.input_tokens + reply.cache_read_tokens + reply.cache_write_tokens
            if ask.streamed:
                await self._stream(ask, reply, step, settled)
            else:
                await self._single(ask, reply, step, settled)
        except WireError as error:
            await self.refuse_error(error)
        finally:
            settled.close()

    async def _answer(self, ask: Ask, step: Step) -> Answer:
        """What the step says, else the answer function, else the text. Raises WireError where none can be made."""
        given = step.reply
        if given is None and self._serving.answer is not None:
            given = await self._asked_answer(self._serving.answer)
        if given is not None and _says_something(given):
            return given
        try:
            default = answer_to(ask, self._serving.seed)
        except UnfillableSchemaError as error:
            raise WireError(400, f"The schema cannot be obeyed: {error}") from error
        return default if given is None else _completed(given, default)

    async def _asked_answer(self, function: Callable[[SeenRequest], Any]) -> Answer:
        try:
            given = function(self._entry)
            if inspect.isawaitable(given):
                given = await self._connection.while_here(given)
        except ClientLeftError:
            raise
        except Exception as error:
            _log.exception("the answer function failed on request %d", self._entry.number)
            raise WireError(500, f"The answer function raised {error!r}") from error
        return as_answer(given)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            await self._connection.pause(seconds)

    async def _single(self, ask: Ask, reply: Reply, step: Step, settled: _Settlement) -> None:
        serving, entry, fault = self._serving, self._entry, step.fault
        if fault is not None and fault.kind == "stall":
            await self._connection.until_left()
            raise ClientLeftError
        if fault is not None and fault.kind == "error":
            status = self._wire.status_of(fault.error_kind)
            error = WireError(status, fault.message, kind=fault.error_kind)
            await self.refuse(self._wire.error(error, self._request_id))
            return
        if serving.tokens_per_s:
            await self._pause(reply.output_tokens / serving.tokens_per_s)
        settled.produced(reply.output_tokens)
        body = encode(self._wire.single(ask, reply))
        if fault is not None:
            await self._cut_single(body, fault)
            return
        entry.status = 200
        told = self._wire.answer_headers(reply) if isinstance(self._wire, CountsInHeaders) else []
        await self._connection.respond(200, [*self._headers(ask.model), *told, _JSON], body)

    async def _cut_single(self, body: bytes, fault: Fault) -> None:
        connection, entry = self._connection, self._entry
        entry.cut = fault.how
        if fault.after_pieces is None and fault.how != "clean":
            await connection.abort(fault.how)
            return
        entry.status = 200
        half = body[: len(body) // 2] if fault.after_pieces is not None else b""
        headers = [*self._headers(entry.model), _JSON]
        if fault.how == "clean":
            await connection.respond(200, headers, half)
            return
        await connection.start(200, [*headers, (b"content-length", b"%d" % len(body))])
        await connection.write(half)
        await connection.abort(fault.how)

    async def _stream(self, ask: Ask, reply: Reply, step: Step, settled: _Settlement) -> None:
        connection, entry, fault = self._connection, self._entry, step.fault
        if fault is not None and fault.after_pieces is None and await self._before_first(fault):
            return
        entry.status = 200
        await connection.start(200, self._headers(ask.model) + self._wire.stream_headers)
        if fault is not None and fault.after_pieces is None:
            await self._strike(fault, reply)
            return
        events = list(self._wire.events(ask, reply))
        total = sum(event.kind == "piece" for event in events)
        pause_s = step.between_pieces_s
        if self._serving.tokens_per_s:
            pause_s += reply.output_tokens / max(1, total) / self._serving.tokens_per_s
        framer = Framer(step.framing or Framing(), binary=self._wire.binary)
        for position, event in enumerate(events):
            if fault is not None and _is_due(fault, event, entry.pieces):
                await self._strike(fault, reply, position)
                return
            if event.kind == "piece":
                await (self._pause(pause_s) if pause_s > 0 else connection.breathe())
                entry.pieces += 1
                settled.produced(reply.output_tokens * entry.pieces // total)
            elif event.kind == "end":
                settled.produced(reply.output_tokens)
            if step.framing is None:
                await connection.write(event.data)
                continue
            for data in framer.writes(event.data, last=position == len(events) - 1):
                await connection.write(data)
                await connection.breathe()
        await connection.end()

    async def _before_first(self, fault: Fault) -> bool:
        """A fault before there is any response: a reset, or silence."""
        if fault.kind == "stall":
            await self._connection.until_left()
            raise ClientLeftError
        if fault.kind == "cut" and fault.how != "clean":
            self._entry.cut = fault.how
            await self._connection.abort(fault.how)
            return True
        return False

    async def _strike(self, fault: Fault, reply: Reply, sent: int = 0) -> None:
        connection, entry = self._connection, self._entry
        if fault.kind == "error":
            entry.error = fault.message
            await connection.write(self._wire.error_event(fault.error_kind, fault.message, reply, sent))
            await connection.end()
        elif fault.kind == "cut":
            entry.cut = fault.how
            await (connection.end() if fault.how == "clean" else connection.abort(fault.how))
        elif fault.keepalive_s is None:
            await connection.until_left()
            raise ClientLeftError
        else:
            while True:
                await connection.pause(fault.keepalive_s)
                await connection.write(self._wire.keepalive(fault.keepalive, reply))


class _Settlement:
    """What a request is charged after its start, counted up as it is produced and closed once."""

    def __init__(
        self, wire: Wire, ask: Ask, cached_tokens: int, meter: Meter | None, serving: Serving, entry: SeenRequest
    ) -> None:
        self._wire = wire
        self._ask = ask
        self._cached_tokens = cached_tokens
        self._meter = meter
        self._serving = serving
        self._entry = entry

    def produced(self, tokens: int) -> None:
        more = tokens - self._entry.output_tokens
        if more <= 0:
            return
        self._entry.output_tokens = tokens
        if self._meter is not None:
            self._meter.take(self._wire.produced_charge(more), self._serving.now())

    def close(self) -> None:
        if self._meter is not None:
            charge = self._wire.settle_charge(self._ask, self._entry.output_tokens, self._cached_tokens)
            self._meter.take(charge, self._serving.now())


def _is_due(fault: Fault, event: Event, pieces: int) -> bool:
    """Due at the piece after the last one allowed, and before the terminal marker in any case."""
    if event.kind == "piece":
        return fault.after_pieces is not None and pieces >= fault.after_pieces
    return event.kind == "end"


def _says_something(answer: Answer) -> bool:
    given = (answer.text, answer.refusal, answer.pieces, answer.redacted_thinking)
    calls = bool(answer.tool_calls or answer.server_tools)
    return answer.json is not UNSET or calls or any(each is not None for each in given)


def _completed(given: Answer, default: Answer) -> Answer:
    """What was not said taken from the default answer."""
    thinking = given.thinking if given.thinking is not None else default.thinking
    return replace(given, text=default.text, json=default.json, thinking=thinking)
