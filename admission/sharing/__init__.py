"""What an `Admission` needs to share its pools with other processes: the line stays, the ledger refills.

    accounts  SharedLevel, SharedGate: accounts of a shared pool, credited by the ledger
    link      PoolLink: what this process has of one shared pool, and has to tell of it
    limiter   SharedLimiter: the mirror of a pool's limits and throttle
    asks      which demands are asked for next (pure)
    courier   Courier: one message in flight between the line and the ledger

Only `interlock.admission` itself imports it; it is imported where a ledger is given.
"""
