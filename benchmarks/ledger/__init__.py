"""How many reservations a second several processes make on one pool, and how long one takes.

`python -m benchmarks.ledger` starts a PostgreSQL of its own (its defaults: every commit that is waited for is on the
disk), a Redis, and files; runs every way of `rows.py` for some seconds; prints the table and draws the picture. The
pool's limits bind nobody: what is measured is the ledger.
"""
