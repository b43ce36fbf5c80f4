"""`make bench`: every benchmark, one after the other, each in a process of its own.

`python -m benchmarks [NAME ...]` runs some of them.
"""

from __future__ import annotations

import subprocess
import sys

#: In the order they are printed. Each is `python -m benchmarks.NAME` by itself too.
BENCHMARKS: dict[str, tuple[str, ...]] = {
    "imports": (),
    "admission": (),
    "clients": (),
    "embeddings": (),
    "runtime": (),
    "journal": (),
    "decisions": (),
    "demo": (),
    "plan": (),
    "search": (),
    "ledger": (),
    "workers": (),
}


def main() -> int:
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {unknown[0]}: there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    failed = []
    for name in names:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *BENCHMARKS[name]], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
