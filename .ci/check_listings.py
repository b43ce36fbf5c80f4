"""Each folder's `__init__.py` says what lives there: every file and folder beside it is named. A folder of
many of one kind says so instead."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
ONE_FILE_EACH = "One file a "


def unlisted(root: Path = ROOT) -> list[str]:
    found = []
    for init in sorted(path for top in root.glob("*/__init__.py") for path in top.parent.rglob("__init__.py")):
        here = init.parent
        told = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
        if told.startswith(ONE_FILE_EACH):
            continue
        names = [path.stem for path in here.glob("*.py") if path != init]
        names += [path.name for path in here.iterdir() if path.is_dir() and any(path.glob("*.py"))]
        missing = [name for name in sorted(names) if not re.search(rf"\b{name}\b", told)]
        found += [f"{init.relative_to(root)}: does not name {name}" for name in missing]
    return found


if __name__ == "__main__":
    problems = unlisted()
    print("\n".join(problems) or "every file is named where it lives")
    sys.exit(bool(problems))
