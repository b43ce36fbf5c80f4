"""The loopback server: uvicorn's HTTP protocol on a socket of its own, without uvicorn's main loop.

uvicorn's own `Server` takes over signals and wakes ten times a second, and its shutdown waits for that clock; a server
inside a test or beside a user's program must do neither. Closing aborts every connection, which is what a stalled
answer waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket
import threading
from collections.abc import Callable
from typing import Any, cast

from interlock.errors import ConfigurationError

from .connection import TRANSPORT
from .joining import JoiningTransport

_BACKLOG = 2_048
_KEEP_ALIVE_S = 75
_LEAVE_S = 5.0
_ROUNDS = 20


class LoopbackServer:
    """Serves an ASGI app on 127.0.0.1 and a free port, on the loop that runs `start`."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._server: asyncio.Server | None = None
        self._state: Any = None
        self.port: int | None = None

    async def start(self) -> None:
        """Raises ConfigurationError where the extra is not installed."""
        try:
            from uvicorn.config import Config
            from uvicorn.server import ServerState
        except ModuleNotFoundError:
            needed = "the simulated provider needs uvicorn: pip install 'interlock[simulator]'"
            raise ConfigurationError(needed) from None

        http = "httptools" if importlib.util.find_spec("httptools") else "h11"
        config = Config(
            self._app,
            http=cast(Any, http),
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=_KEEP_ALIVE_S,
            server_header=False,
            date_header=False,
            proxy_headers=False,
        )
        config.load()
        self._state = ServerState()
        # The protocol is named because asyncio turns Nagle's algorithm off only where it reads TCP: without it every
        # answer waits 40 ms for an acknowledgement.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol(config), sock=listener, backlog=_BACKLOG)

    def _protocol(self, config: Any) -> Callable[[], asyncio.Protocol]:
        class Protocol(config.http_protocol_class):  # type: ignore[misc]
            """Leaves the transport where an answer that cuts its connection finds it; writes no access log."""

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                joining = JoiningTransport(cast(asyncio.Transport, transport))
                self.app_state = {TRANSPORT: joining}
                self.access_log = False
                super().connection_made(joining)

        return lambda: Protocol(config=config, server_state=self._state, app_state={})

    async def stop(self) -> None:
        """Close the socket and every connection, and wait for the answers under way to notice."""
        if self._server is None:
            return
        server, self._server, self.port = self._server, None, None
        server.close()
        for connection in list(self._state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        if self._state.tasks:
            _, left = await asyncio.wait(list(self._state.tasks), timeout=_LEAVE_S)
            for task in left:
                task.cancel()
        await server.wait_closed()
        for _ in range(_ROUNDS):  # an aborted connection is gone a turn of the loop later
            if not self._state.connections:
                break
            await asyncio.sleep(0)


class ThreadedServer:
    """The same server in a thread of its own, with its own loop."""

    def __init__(self, app: Any) -> None:
        self._server = LoopbackServer(app)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._problem: BaseException | None = None

    @property
    def port(self) -> int | None:
        return self._server.port

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="interlock-simulator", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            self._thread.join()
            raise self._problem

    def stop(self) -> None:
        loop, stopping = self._loop, self._stopping
        if self._thread is None or loop is None or stopping is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            loop.call_soon_threadsafe(stopping.set)
        self._thread.join()
        self._thread = None

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        try:
            await self._server.start()
        except BaseException as error:
            self._problem = error
            return
        finally:
            self._ready.set()
        await self._stopping.wait()
        await self._server.stop()
