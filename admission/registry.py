"""What there is to draw on, and what a demand draws of it: pools and held accounts by name, demands as amounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from interlock.catalog.entry import Limits

from .accounts import Account, HeldAccount, MeteredAccount
from .charges import Charge
from .demand import Demand
from .gates import CustomGate, CustomMeter, Gate
from .levels import OpenLevel
from .line import Line
from .memory import PoolMemory, recall
from .pool import Pool
from .queues import Group

if TYPE_CHECKING:
    from .sharing.courier import Courier

Priced = tuple[Group, tuple[float, ...], tuple[Charge, ...]]


#: Shapes remembered, and with them the groups in which nobody waits; they are cheap to make again.
REMEMBERED = 1_024
#: Calls of one kind in one demand.
MOST_CALLS = 1_000_000


class Shape:
    """How the demands on one set of pools, with one set of held amounts, turn into amounts in their group's order.

    `held` follows what the calls are charged. `places` maps each raw amount to its account where one is named twice or
    out of order; None where it is not needed.
    """

    __slots__ = ("group", "held", "places")

    def __init__(self, line: Line, raw: Sequence[Account], held: tuple[float, ...]) -> None:
        accounts = list(dict.fromkeys(raw))
        accounts.sort(key=lambda account: not account.metered)  # stable: the leading pool's levels stay first
        self.group, self.held = line.group(tuple(accounts)), held
        self.places = None if list(raw) == accounts else [accounts.index(account) for account in raw]

    def arrange(self, raw: tuple[float, ...]) -> tuple[float, ...]:
        if self.places is None:
            return raw
        amounts = [0.0] * len(self.group.accounts)
        for place, n in zip(self.places, raw, strict=True):
            amounts[place] += n
        return tuple(amounts)


class Registry:
    """Pools and held accounts, each name once, and the shapes of demands seen so far."""

    __slots__ = ("_custom", "_line", "_memories", "_nothing", "_shapes", "_wall", "gates", "pools")

    def __init__(self, line: Line, wall: Callable[[], datetime] | None = None) -> None:
        self._line, self._wall = line, wall
        self.pools: dict[str, Pool] = {}
        self.gates: dict[str, Gate] = {}
        self._custom: dict[int, CustomGate] = {}
        self._shapes: dict[object, Shape] = {}
        #: Of pools not made yet: what is remembered of them, the instant it was read, whether its process crashed.
        self._memories: dict[str, list[tuple[PoolMemory, float, bool]]] = {}
        #: What a demand that names nothing draws on.
        self._nothing = OpenLevel("(nothing)")

    def pool(self, name: str, limits: Limits, now: float, courier: Courier | None = None) -> tuple[Pool, bool]:
        """The pool of that name, and whether its limits have changed with this call. `courier`: it is shared."""
        pool = self.pools.get(name)
        if pool is None:
            link = None if courier is None else courier.link(name, limits)
            pool = self.pools[name] = Pool(name, limits, now, self._wall, link)
            if link is None:
                self._carry_over(pool, now)
            return pool, False
        if pool.limits == limits:
            return pool, False
        if pool.link is not None and courier is not None:
            courier.link(name, limits)
        pool.update(limits, now)
        self.reshaped()
        return pool, True

    def reshaped(self) -> None:
        """A pool has other accounts than before."""
        self._shapes.clear()

    def recall(self, memories: Mapping[str, PoolMemory], read_at: float, now: float, crashed: bool) -> None:
        """What an earlier process remembered at `read_at`, of pools that are there or come later."""
        for name, memory in memories.items():
            self._memories.setdefault(name, []).append((memory, read_at, crashed))
            pool = self.pools.get(name)
            if pool is not None and pool.link is None:
                self._carry_over(pool, now)

    def _carry_over(self, pool: Pool, now: float) -> None:
        for memory, read_at, crashed in self._memories.pop(pool.name, ()):
            recall(pool, memory, now - read_at, now, crashed=crashed)

    def gate(self, account: Gate | HeldAccount) -> Gate:
        """The held account as the line knows it. ValueError if another one has its name."""
        known = self._custom.get(id(account))
        if known is not None:
            return known
        if isinstance(account, Gate):
            gate = account
        else:
            gate = CustomMeter(account) if isinstance(account, MeteredAccount) else CustomGate(account)
        if self.gates.setdefault(gate.name, gate) is not gate:
            raise ValueError(f"there is another held account named {gate.name!r}")
        if isinstance(gate, CustomGate):
            self._custom[id(account)] = gate
        return gate

    def price(self, demand: Demand) -> Priced:
        """The demand's group, its amounts there, and what one call of each kind is charged."""
        calls = demand.calls
        if len(calls) == 1 and calls[0].count == 1:
            call = calls[0]
            pool = call.pool
            charge, seen = pool.charge(call, demand.kind), (pool, demand.held)
            shape = self._shapes.get(seen) or self._shape(seen, demand)
            raw = pool.select(charge) + shape.held
            return shape.group, raw if shape.places is None else shape.arrange(raw), (charge,)
        key = (tuple([(call.pool, call.count) for call in calls]), demand.held)
        shape = self._shapes.get(key) or self._shape(key, demand)
        charges = tuple([call.pool.charge(call, demand.kind) for call in calls])
        raw = ()
        for call, charge in zip(calls, charges, strict=True):
            raw += tuple([n * call.count for n in call.pool.select(charge)])
        return shape.group, shape.arrange(raw + shape.held), charges

    @staticmethod
    def charges(demand: Demand) -> tuple[Charge, ...]:
        """What one call of each kind is charged."""
        return tuple([call.pool.charge(call, demand.kind) for call in demand.calls])

    @staticmethod
    def lasting(demand: Demand) -> bool:
        """Whether its charges are the same whenever they are made: they follow from its calls alone."""
        calls = demand.calls
        if len(calls) == 1:
            return calls[0].accounting.output == "limit"
        return all(call.accounting.output == "limit" for call in calls)

    def _shape(self, key: object, demand: Demand) -> Shape:
        raw: list[Account] = [level for call in demand.calls for level in call.pool.limiter.accounts]
        slots: dict[Gate, float] = {}
        for call in demand.calls:
            if not 1 <= call.count <= MOST_CALLS:
                raise ValueError(
                    f"a demand declares {call.count!r:.24} calls of {call.key}; it must be 1 to {MOST_CALLS:,}"
                )
            gate = call.pool.gate
            if gate is not None:  # with fewer slots than calls they go one after the other
                slots[gate] = min(slots.get(gate, 0) + call.count, gate.capacity)
        raw += slots
        held = list(slots.values())
        for account, amount in demand.held:
            if not amount >= 1:
                raise ValueError(f"a demand asks {amount} of {account.name}; it must be at least 1")
            raw.append(self.gate(account))
            held.append(amount)
        if not raw:
            raw.append(self._nothing)
            held.append(0.0)
        if len(self._shapes) >= REMEMBERED:
            self._shapes.clear()
            self._line.forget()
        shape = self._shapes[key] = Shape(self._line, raw, tuple(held))
        return shape

    @staticmethod
    def pool_gates(demand: Demand) -> list[Gate]:
        """The concurrency gates of its calls' pools."""
        return [call.pool.gate for call in demand.calls if call.pool.gate is not None]
