"""The loopback provider, in a process of its own: `python -m benchmarks.clients.provider [TOKENS_PER_S]`. It tells its
address and serves until its input ends. A streamed answer has 500 pieces."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from interlock.clients.simulator import Answer, SimulatedProvider

from .workload import PIECES

STREAMED = Answer(pieces=tuple(f"word{number} " for number in range(PIECES)))
WHOLE = Answer(text="The fox jumps, the dog does not, and nobody minds.")


@contextmanager
def running(*arguments: str) -> Iterator[str]:
    """Its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.communicate()


def allow_files() -> None:
    """As many open connections as the machine allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    allow_files()
    tokens_per_s = float(sys.argv[1]) if len(sys.argv) > 1 else None
    provider = SimulatedProvider(
        answer=lambda seen: STREAMED if seen.streamed else WHOLE, tokens_per_s=tokens_per_s, keep_requests=10
    )
    with provider.in_thread():
        print(provider.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
