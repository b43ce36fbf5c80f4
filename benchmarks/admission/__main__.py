"""`python -m benchmarks.admission [NAME ...]`: the tables of this folder, each in a process of its own.

Without a name: `cpu` and `settling`. `peers` is run only when it is named: it takes the better part of an hour and
installs what it compares with; so are `head`, which draws a picture, and `expected`, which compares ways to reserve.
"""

from __future__ import annotations

import subprocess
import sys

USUAL = ("cpu", "settling")
ON_REQUEST = ("peers", "head", "expected")


def main() -> int:
    names = sys.argv[1:] or list(USUAL)
    unknown = [name for name in names if name not in (*USUAL, *ON_REQUEST)]
    if unknown:
        print(f"no benchmark {unknown[0]}: there are {', '.join((*USUAL, *ON_REQUEST))}", file=sys.stderr)
        return 2
    failed = []
    for name in names:
        print(f"\n-- {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"{__package__}.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
