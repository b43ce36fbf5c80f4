"""Interlock against what else a user could pick, on the same provider, with the same calls, in the same run.

`python -m benchmarks.admission.peers` runs every row and renders the table and the pictures; `--help` says what else.

    rows.py          what is asked of everybody: callers, and what the provider really serves
    workload.py      the calls: the same ones in the same order for everybody
    contenders.py    who takes part, and what each cannot say
    adapters/        one file a contender: how its own documentation says to use it
    child.py         a contender's process: callers over an adapter, in an environment of its own
    provider.py      a contender's provider, in a process of its own
    environments.py  an environment a contender, made from pinned versions
    race.py          one row: everybody side by side
    figures.py       goodput, refusals and waits from what the providers saw
    table.py         the table; picture.py: the pictures

`child.py`, `workload.py` and the adapters run where Interlock is not installed, so they import nothing of it.
"""
