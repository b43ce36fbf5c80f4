"""Who is alive: a row an incarnation of a process. Pure SQL on a connection; the thread that beats is `lease`.

An owner lives while its row was touched less than its TTL ago, by one clock for all: that of the server, or on SQLite,
which is one host's, the host's time since it was started (which no step of the wall clock moves; after a restart of the
host everybody from before is dead). Who has lapsed stays dead: whoever takes its work marks the row `lost`, so a
process that was frozen and wakes up finds itself refused.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Float, and_, cast, false, func, literal, or_, select

from .opening import TTL_S
from .schema import owners

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Row, Select

#: The name of a server's clock.
SERVER = "server"
#: Rows of owners that have been gone for so long are dropped.
FORGOTTEN_AFTER_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One life of a process. `place` is where its `pid` means something; `born` tells it from a later one of that pid.
    Both are "" where the system does not say."""

    host: str
    place: str
    pid: int
    born: str

    @classmethod
    def here(cls) -> Incarnation:
        pid = os.getpid()
        return cls(host=socket.gethostname(), place=_place(), pid=pid, born=_born(pid))

    @property
    def gone(self) -> bool:
        """Whether its process is known to have ended: seen from where its pid means something."""
        return bool(self.place and self.born) and self.place == _place() and _born(self.pid) != self.born


def _place() -> str:
    """The kernel's life and the namespace of process ids; "" where there is no such thing."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _born(pid: int) -> str:
    """When the process of that id was started, by the kernel's count; "" where there is none."""
    try:
        said = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if said[0] in "ZX" else said[19]  # a zombie has ended


def enter(connection: Connection, owner: str, who: Incarnation, ttl_s: float = TTL_S) -> int:
    """Register; the fencing number, larger than any before."""
    if connection.dialect.name == "postgresql":
        # Two who enter at once must not get one number.
        connection.exec_driver_sql("LOCK TABLE owners IN SHARE ROW EXCLUSIVE MODE")
    now, epoch = _clock(connection)
    newest = connection.execute(select(func.max(owners.c.fence))).scalar() or 0
    gone = or_(owners.c.epoch != epoch, owners.c.seen < now - FORGOTTEN_AFTER_S)
    connection.execute(owners.delete().where(gone, owners.c.fence < newest))  # the newest keeps the count
    values = {"host": who.host, "place": who.place, "pid": who.pid, "born": who.born, "ttl_s": ttl_s}
    connection.execute(
        owners.insert().values(owner=owner, fence=newest + 1, epoch=epoch, seen=now, lost=False, **values)
    )
    return newest + 1


def beat(connection: Connection, owner: str) -> bool:
    """Stay alive. False: it was given up, or has lapsed by now."""
    now, _ = _clock(connection)
    statement = owners.update().where(owners.c.owner == owner, is_alive(connection)).values(seen=now)
    return connection.execute(statement).rowcount > 0


def come_back(connection: Connection, owner: str) -> bool:
    """Live on, however long nobody could hear of it, if nobody has given it up: for one who has tried all along and was
    not let in. Who was frozen must not."""
    now, epoch = _clock(connection)
    kept = and_(owners.c.owner == owner, owners.c.lost == false(), owners.c.epoch == epoch)
    return connection.execute(owners.update().where(kept).values(seen=now)).rowcount > 0


def leave(connection: Connection, owner: str) -> None:
    """Its process ends in good order: what it has is anybody's at once."""
    connection.execute(owners.update().where(owners.c.owner == owner).values(lost=True))


def alive(connection: Connection, names: Collection[str]) -> set[str]:
    """Which of them live. On Postgres their rows are locked against being given up until the transaction ends."""
    statement = living(connection, owners.c.owner.in_(sorted(names)))
    return {row.owner for row in connection.execute(statement.with_for_update(read=True))}


def others(connection: Connection, owner: str) -> int:
    """How many other processes are here, this very moment."""
    found = connection.execute(select(owners).where(owners.c.owner != owner, is_alive(connection)))
    return sum(not incarnation(row).gone for row in found)


def living(connection: Connection, which: ColumnElement[bool]) -> Select[Any]:
    """The question for the names of those that live, always asked in one order."""
    return select(owners.c.owner).where(which, is_alive(connection)).order_by(owners.c.owner)


def give_up(connection: Connection, owner: str) -> bool:
    """Whether `owner` is dead; then it stays so, and nothing it still writes counts."""
    row = connection.execute(
        select(owners, is_alive(connection).label("alive")).where(owners.c.owner == owner).with_for_update()
    ).first()
    if row is None or row.lost:
        return True
    if row.alive and not incarnation(row).gone:
        return False
    leave(connection, owner)
    return True


def incarnation(row: Row[Any]) -> Incarnation:
    return Incarnation(host=row.host, place=row.place, pid=row.pid, born=row.born)


def is_alive(connection: Connection) -> ColumnElement[bool]:
    """The condition on a row of `owners`."""
    now, epoch = _clock(connection)
    heard: ColumnElement[float] = owners.c.seen
    if epoch == SERVER:
        # Nobody could be heard while the server was down, so silence counts from its start.
        started = cast(func.extract("epoch", func.pg_postmaster_start_time()), Float)
        heard = func.greatest(owners.c.seen, started)
    # Later than now: from before the host was started anew, where the system does not tell one start from another.
    recent = and_(heard > now - owners.c.ttl_s, owners.c.seen <= now)
    return and_(owners.c.lost == false(), owners.c.epoch == epoch, recent)


def _clock(connection: Connection) -> tuple[ColumnElement[float], str]:
    """Now, in seconds, and the name of the clock it was read from."""
    if connection.dialect.name == "postgresql":
        return cast(func.extract("epoch", func.clock_timestamp()), Float), SERVER
    return literal(time.monotonic()), _place().partition(" ")[0] or socket.gethostname()
