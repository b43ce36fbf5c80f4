"""Whether this process has been running all along. A thread looks at the clock now and then and does nothing else: so
it is late only where the process was stopped, and not where something is waited for (a lock that another process has,
a server that does not answer).
"""

from __future__ import annotations

import threading
from time import monotonic


class Pulse:
    """`steady` unless the process was stopped for `gap_s` or longer since `start`, or since `forget`."""

    def __init__(self, name: str, *, every_s: float, gap_s: float) -> None:
        self._every_s, self._gap_s = every_s, gap_s
        self._missed = False
        self.at = monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self.at = monotonic()
        self._thread.start()

    def stop(self) -> None:
        """May be called again; the thread ends by itself."""
        self._ending.set()

    @property
    def steady(self) -> bool:
        return not self._missed and monotonic() - self.at < self._gap_s

    def forget(self) -> None:
        """What was missed has been made good."""
        self._missed, self.at = False, monotonic()

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            now = monotonic()
            if now - self.at >= self._gap_s:
                self._missed = True
            self.at = now
