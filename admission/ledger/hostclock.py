"""One clock for all processes of a host: it runs on while they come and go, and nobody can set it.

The kernel counts seconds since it booted, the same for every process, whatever is done to the time of day. What is
added to make it the ledger's time is kept in the ledger, once per boot.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Names this boot of the host; empty where the system does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def since_boot() -> float:
    """Seconds since the host booted, its sleep included; where the system does not tell, the time of day."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.time()
