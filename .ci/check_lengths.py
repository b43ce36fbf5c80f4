"""No source file holds two ideas: none is longer than 500 lines. A rule for this repository, so `make check` has it and
`make test`, which others run on code of their own, has not."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST = 500  # lines
HERE = {path.name for path in ROOT.glob("*/__init__.py")} | {"src", "tests", "examples", ".ci"}


def too_long(root: Path = ROOT) -> list[str]:
    counted = [
        (path.relative_to(root), len(path.read_text(encoding="utf-8").splitlines()))
        for folder in sorted(HERE)
        for path in sorted((root / folder).rglob("*.py"))
    ]
    return [f"{path}: {lines} lines, more than {LONGEST}: split it" for path, lines in counted if lines > LONGEST]


if __name__ == "__main__":
    problems = too_long()
    print("\n".join(problems) or "no file is too long")
    sys.exit(bool(problems))
