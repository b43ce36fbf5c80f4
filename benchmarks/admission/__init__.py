"""What admission costs and what it achieves.

`python -m benchmarks.admission` prints the tables of this folder: `cpu` (microseconds and bytes), `head`
(why a large call is protected: a picture).
"""
