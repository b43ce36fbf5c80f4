"""What admission costs and what it achieves.

`python -m benchmarks.admission` prints the tables of this folder: `cpu` (microseconds and bytes), `settling` (goodput,
refusals and waits over simulated hours). By name only: `peers` (beside what else there is: the better part of an hour),
`head` (why a large call is protected: a picture), `expected` (rules for how much output to reserve).
"""
