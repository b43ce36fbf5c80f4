"""What admission costs and what it achieves.

`python -m benchmarks.admission` prints the tables of this folder: `cpu` (microseconds and bytes).
"""
