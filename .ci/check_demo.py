"""The figures that `interlock demo --json` promises, asserted on what it printed."""

import json
import sys
from pathlib import Path
from typing import Any

KEYS = {
    "jobs",
    "failed",
    "rate_limited",
    "goodput",
    "db_connection_s",
    "db_work_s",
    "wall_s",
    "cost",
    "search",
    "baseline",
}
BASELINE_KEYS = {"rate_limited", "goodput", "db_connection_s", "wall_s"}


def problems_of(figures: dict[str, Any]) -> list[str]:
    checks = {
        "the keys are those promised": set(figures) == KEYS and set(figures["baseline"]) == BASELINE_KEYS,
        "a few hundred jobs ran": figures["jobs"] >= 200,
        "none failed": figures["failed"] == 0,
        "none was refused with a 429": figures["rate_limited"] == 0,
        "goodput is at least 0.97 of the limit": 0.97 <= figures["goodput"] <= 1.03,
        "connections are held for at most 1.1 x the work": figures["db_connection_s"] <= 1.1 * figures["db_work_s"],
        "the search finds argparse": any(found["module"] == "argparse" for found in figures["search"]),
        "the usual way is refused": figures["baseline"]["rate_limited"] > 0,
        "the usual way holds connections longer": figures["baseline"]["db_connection_s"] > figures["db_connection_s"],
        "it ends within 90 s": figures["wall_s"] + figures["baseline"]["wall_s"] < 90,
    }
    return [f"not so: {what}" for what, holds in checks.items() if not holds]


def main() -> int:
    figures = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    problems = problems_of(figures)
    print(json.dumps(figures, indent=1))
    print("\n".join(problems) or "the demo keeps its promises")
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main())
