"""Who keeps a file locked, in words that say what to do about it."""

from __future__ import annotations

import os
from pathlib import Path

_LOCKS = Path("/proc/locks")


def holder(path: str) -> str:
    """Of the `flock` on that file; `another process` where the system does not tell."""
    pid = _holder(path)
    if pid is None:
        return "another process keeps it locked: look for one that is stopped, and let it go on or end it"
    if pid == os.getpid():
        return "this process itself keeps it locked"
    if _is_stopped(pid):
        return f"process {pid} is stopped and keeps it locked: kill -CONT {pid} lets it go on, kill -9 {pid} ends it"
    return f"process {pid} keeps it locked: look at what it does"


def _holder(path: str) -> int | None:
    try:
        inode = str(os.stat(path).st_ino)
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        # `1: FLOCK  ADVISORY  WRITE 8141 fe:00:1234 0 EOF`; who waits has an arrow before the kind.
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode and int(fields[4]) > 0:
            return int(fields[4])
    return None


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except (OSError, IndexError):
        return False
