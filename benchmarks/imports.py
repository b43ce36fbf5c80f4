"""How long `import interlock` and `interlock --help` take, each in a process of its own: the best of five.

`python -m benchmarks.imports`
"""

from __future__ import annotations

import subprocess
import sys
import time

from rich.console import Console
from rich.table import Table

HELP = "import sys; sys.argv = ['interlock', '--help']; from interlock.runtime.cli import main; main()"
CASES = (
    ("python -c pass", "pass", None),
    ("import interlock", "import interlock", 0.3),
    (
        "interlock --help",
        "import sys; sys.argv = ['interlock', '--help']; from interlock.runtime.cli import main; main()",
        0.5,
    ),
    ("from interlock import Runtime, LLMCall, pipeline", "from interlock import Runtime, LLMCall, pipeline", None),
)
ROUNDS = 5


def seconds(code: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> None:
    shown = Table(title="Start", title_justify="left")
    for name in ("", "seconds", "promised"):
        shown.add_column(name, justify="right" if name else "left")
    for name, code, promised in CASES:
        best = min(seconds(code) for _ in range(ROUNDS))
        shown.add_row(name, f"{best:.3f}", f"< {promised}" if promised else "")
    Console().print(shown)


if __name__ == "__main__":
    main()
