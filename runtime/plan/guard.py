"""Nothing leaves this process while a pipeline is rehearsed: no connection, no program, no database."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from interlock.errors import ConfigurationError

#: What an audit hook hears of, and what it is in words.
REFUSED = {
    "socket.connect": "opens a connection",
    "socket.sendto": "sends to a socket",
    "socket.getaddrinfo": "looks up a host",
    "subprocess.Popen": "starts a program",
    "os.system": "starts a program",
    "os.posix_spawn": "starts a program",
    "os.exec": "starts a program",
    "sqlite3.connect": "opens a database",
}


class RehearsalError(ConfigurationError):
    """A pipeline that cannot be planned as it is. The message says what to do."""

    code = "rehearsal"


class _Guard:
    """An audit hook cannot be taken out again, so there is one, and it is asleep but while something is rehearsed."""

    def __init__(self) -> None:
        self.awake, self._installed = 0, False

    def install(self) -> None:
        if not self._installed:
            self._installed = True
            sys.addaudithook(self._hear)

    def _hear(self, event: str, _arguments: object) -> None:
        if self.awake and event in REFUSED:
            raise RehearsalError(
                f"the pipeline's own code {REFUSED[event]} ({event}) while it is planned, and nothing may leave this "
                "process then: put that into a job or a ctx.step, which a plan does not run"
            )


_GUARD = _Guard()


@contextmanager
def nothing_leaves() -> Iterator[None]:
    """Refuse what would have an effect outside, with a RehearsalError in the code that tries."""
    _GUARD.install()
    _GUARD.awake += 1
    try:
        yield
    finally:
        _GUARD.awake -= 1
