"""Admission: who may send what, and when. Reserve before sending; settle to what was used.

    accounts.py     what all accounts have in common; the protocols for a user's own
    gates.py        held accounts; levels.py: metered ones
    limiter.py      a pool's levels and the throttle they share
    windows.py      limits per day that are given back at one instant (pure)
    throttle.py     what refusals teach (pure)
    charges.py      what a call is charged and settles to (pure)
    expected.py     what a call is expected to put out (pure)
    growing.py      answers under way that are metered while they grow
    memory.py       what a pool must not forget when its process ends (pure)
    line.py         the one line: order, claims, backfilling, fair share (pure)
    shares.py       what each workflow has had: virtual time
    queues.py       what the line keeps: waiters, flows, groups
    demand.py       what is asked, and the frozen values that are told
    pool.py         a pool in the shell
    registry.py     pools and held accounts by name; demands as amounts
    waiting.py      a submitted demand
    controller.py   `Admission`, the asyncio shell
    reservation.py  `Reservation` and its permits; settling.py: what they do to the accounts
    report.py       explanations, statistics, the words of a refusal
    spend.py        cost caps
    deadlines.py    who must not wait longer
    pauses.py       the garbage collector and a long line
    delivery.py     callbacks, coalesced into one `call_soon`
    outcome.py      how a call ended, as admission needs to know it
    permit.py       the protocol of a permit, for whoever sends
    clock.py        the clocks
    ledger/         the shared ledger, where several processes draw on one pool
    sharing/        one process's side of it: the line stays, the ledger refills
    virtual.py      an event loop of virtual time (imported by whoever wants one)

Above it stand clients, embeddings, decisions and runtime, which may import it; it imports the catalog's values and the
errors only.
"""

from .accounts import Account, HeldAccount, MeteredAccount
from .charges import Charge, settle_charge, start_charge
from .clock import Clock, ManualClock, SystemClock, Timer
from .controller import Admission
from .demand import AccountStatistics, AdmissionStatistics, CallCharge, Demand, Explanation, Ticket
from .gates import CountingGate, CustomGate, DatabaseGate, Gate
from .levels import Level
from .limiter import Rate, TokenBucketRateLimiter, rates_of
from .line import Line
from .memory import PoolMemory
from .outcome import CallOutcome, Dimension, OutcomeKind, ReportedLimit
from .permit import CallPermit
from .pool import Pool
from .reservation import Permit, Reservation
from .spend import Cap, CapStatistics, SpendGate, SpendHold
from .throttle import Throttle
from .waiting import Waiting
from .windows import WindowLevel

__all__ = [
    "Account",
    "AccountStatistics",
    "Admission",
    "AdmissionStatistics",
    "CallCharge",
    "CallOutcome",
    "CallPermit",
    "Cap",
    "CapStatistics",
    "Charge",
    "Clock",
    "CountingGate",
    "CustomGate",
    "DatabaseGate",
    "Demand",
    "Dimension",
    "Explanation",
    "Gate",
    "HeldAccount",
    "Level",
    "Line",
    "ManualClock",
    "MeteredAccount",
    "OutcomeKind",
    "Permit",
    "Pool",
    "PoolMemory",
    "Rate",
    "ReportedLimit",
    "Reservation",
    "SpendGate",
    "SpendHold",
    "SystemClock",
    "Throttle",
    "Ticket",
    "Timer",
    "TokenBucketRateLimiter",
    "Waiting",
    "WindowLevel",
    "rates_of",
    "settle_charge",
    "start_charge",
]
