"""`python -m benchmarks.admission`: every table of this folder."""

from __future__ import annotations

from .cpu import main

if __name__ == "__main__":
    main()
