"""An environment a contender, made once from pinned versions and kept in a cache folder, never the project's own."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Protocol


class Contender(Protocol):
    """Who wants an environment: `environment` is its folder's name."""

    @property
    def name(self) -> str: ...

    @property
    def environment(self) -> str: ...

    @property
    def packages(self) -> tuple[str, ...]: ...


ROOT = Path(__file__).parents[3]
#: The peers' pins, and the project's own for Interlock itself.
PEERS_PINS, OWN_PINS = Path(__file__).parent / "constraints.txt", ROOT / "constraints.txt"
#: What two of the peers need; everybody gets the same.
LEAST_PYTHON = (3, 12)
_PYTHONS = ("python3.13", "python3.12", "python3", "python")


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "interlock-peers"


def find_python(asked: str | None = None) -> str:
    """A Python new enough for every contender. SystemExit: there is none."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    installed = sorted(versions.glob("3.1[2-9]*/bin/python"), reverse=True)
    for candidate in [asked] if asked else [sys.executable, *_PYTHONS, *map(str, installed)]:
        if _is_new_enough(candidate):
            return candidate
    raise SystemExit(f"a Python of {'.'.join(map(str, LEAST_PYTHON))} or later is needed: --python /path/to/python3.13")


def _is_new_enough(candidate: str) -> bool:
    asks = f"import sys, venv; sys.exit(sys.version_info < {LEAST_PYTHON})"
    try:
        return subprocess.run([candidate, "-c", asks], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def environment(contender: Contender, folder: Path, python: str, peers_pins: Path = PEERS_PINS) -> Path:
    """The contender's own interpreter; made now if the pins have changed or there is none."""
    home = folder / contender.environment
    found, mark = home / "bin" / "python", home / ".pins"
    pins = OWN_PINS if contender.name == "interlock" else peers_pins
    wanted = f"{hashlib.sha256(pins.read_bytes()).hexdigest()} {' '.join(contender.packages)}"
    if found.exists() and mark.exists() and mark.read_text(encoding="utf-8") == wanted:
        return found
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([python, "-m", "venv", str(home)], check=True)
    pip = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(pins)]
    subprocess.run([*pip, "pip"], check=True)
    subprocess.run([*pip, *(word for name in contender.packages for word in _wanted(name))], check=True)
    mark.write_text(wanted, encoding="utf-8")
    return found


def _wanted(package: str) -> list[str]:
    """Interlock itself is the tree this benchmark stands in."""
    return ["-e", str(ROOT)] if package == "interlock" else [package]
