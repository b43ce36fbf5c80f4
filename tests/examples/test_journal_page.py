"""docs/journal.md: its program is killed and goes on as the page shows; its tables are the code's."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from interlock.runtime.journal.replay import Again

PAGE = (Path(__file__).parent.parent.parent / "docs" / "journal.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_program_goes_on_as_the_page_shows(checkout: Path, run: Any) -> None:
    store = checkout / "report.db"
    try:
        killed = run([sys.executable, "-c", block("python"), "crash"], checkout)
        assert (killed.returncode, killed.stdout) == (137, ""), killed.stderr
        done = run([sys.executable, "-c", block("python")], checkout)
        assert done.returncode == 0, done.stderr
        assert done.stdout == block("text")
    finally:
        for file in store.parent.glob("report.db*"):
            file.unlink()


def test_the_reasons_are_the_codes() -> None:
    named = {"again"} ^ set(re.findall(r"\| `(\w+)` +\|$", PAGE, re.MULTILINE))
    assert named == {Again.AMBIGUOUS, Again.UNCOMMITTED, Again.PAID}
