"""docs/fallback.md: its program prints what the page shows, and its table says what the breaker does."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from interlock.clients import breaker
from interlock.runtime.routing import STRIKES

PAGE = (Path(__file__).parent.parent.parent / "docs" / "fallback.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_program_prints_what_the_page_shows(checkout: Path, run: Any) -> None:
    done = run([sys.executable, "-c", block("python")], checkout)
    assert done.returncode == 0, done.stderr
    assert done.stdout == block("text")
    assert "model ours is passed over for 15 s" in done.stderr


def test_the_table_is_the_breakers() -> None:
    rows = dict(re.findall(r"^\| (closed|open|half open) +\| (.*)$", PAGE, re.MULTILINE))
    ordinal = {2: "second", 3: "third"}
    assert f"{ordinal[breaker.FAILURES]} failure in a row" in rows["closed"]
    times = [f"{each:.0f} s" for each in (breaker.FIRST_OPEN_S, breaker.LONGEST_OPEN_S, breaker.QUOTA_OPEN_S)]
    assert re.findall(r"\d+ s", rows["open"]) == times
    assert f"{ordinal[breaker.SUCCESSES]} success in a row" in rows["half open"]
    assert breaker.PROBE_EXPIRES_S == 3_600
    assert STRIKES == 2
