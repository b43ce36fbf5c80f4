"""From a URL to a book, or to answers. What cannot be opened is one sentence, without a password in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from uuid import uuid4

from interlock.errors import InterlockError, StoreError

from .place import Place, sqlstate

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from .link import Link
    from .sql_book import SqlBook

T = TypeVar("T")

#: What a commit survives. NORMAL with a write-ahead log: a killed process; FULL: the loss of power too, at a price.
#: A server keeps what it has committed either way.
Durability = Literal["NORMAL", "FULL"]
#: How often a question is asked whose transaction had to give way to others.
TRIES = 5
#: How long a process that says nothing is believed to live, seconds.
TTL_S = 15.0


def open_book(url: str, *, durability: Durability = "NORMAL", ttl_s: float = TTL_S) -> SqlBook:
    """Open the store at an SQLAlchemy URL (`sqlite:///interlock.db`, `sqlite:///:memory:`,
    `postgresql://user@host/database`): make its tables, or bring them up, and enter as one of its processes.

    Raises StoreError: an unreadable URL, a database that this version cannot store in, one that cannot be opened, a
    store of a newer version. Blocks; call it in a thread.
    """
    from .lease import Lease
    from .link import link_to
    from .sql_book import SqlBook

    place = Place.of(url)
    owner = uuid4().hex
    link = link_to(place, durability)
    _in_thread(link, place, lambda connection: _prepare(connection, place, owner))
    lease = None
    if not place.in_memory:  # nobody else can see that one
        lease = Lease(link_to(place, durability), place.name, owner=owner, ttl_s=ttl_s)
        try:
            lease.start()
        except Exception as error:
            raise place.refused(error) from None
    return SqlBook(link, place, owner, lease)


def upgrade_store(url: str) -> tuple[str | None, str]:
    """Make or bring up the store at `url`; the version it was of (None: there was none) and is now."""
    from .link import link_to, transaction
    from .migrating import upgrade

    place = Place.of(url)

    def bring_up(connection: Connection) -> tuple[str | None, str]:
        with transaction(connection):
            return upgrade(connection, place.name)

    return _in_thread(link_to(place), place, bring_up, dispose=True)


def read_store(url: str, question: Callable[[Connection], T], *, writes: bool = False) -> T:
    """Ask a store that exists, in one transaction, in a thread of its own; for programs that only look.

    Raises StoreError where there is none, or it is of another version. `writes`: the question changes rows. It is asked
    again where its transaction met another one and had to give way.
    """
    from sqlalchemy.exc import DBAPIError

    from .link import MET, link_to, transaction
    from .migrating import check_readable

    place = Place.of(url)
    if place.in_memory or (place.path is not None and not place.path.is_file()):
        raise StoreError(f"there is no store {place.name}: nothing has been recorded there yet, or the path is another")

    def ask(connection: Connection) -> T:
        connection.execution_options(interlock_read=True)
        with transaction(connection):
            check_readable(connection, place.name)
        connection.execution_options(interlock_read=not writes)
        for left in reversed(range(TRIES)):
            try:
                with transaction(connection):
                    return question(connection)
            except DBAPIError as error:
                if not left or sqlstate(error) not in MET:
                    raise
        raise AssertionError("the last try ends it")

    link = link_to(place if writes else place.to_read(), None)
    return _in_thread(link, place, ask, dispose=True)


def _prepare(connection: Connection, place: Place, owner: str) -> None:
    from .link import transaction
    from .migrating import upgrade
    from .owners import Incarnation, enter
    from .schema import metadata

    with transaction(connection):
        if place.in_memory:  # it begins and ends with this process: there is nothing to bring up, and nobody to lapse
            metadata.create_all(connection)
            enter(connection, owner, Incarnation.here(), ttl_s=1e12)
        else:
            upgrade(connection, place.name)


def _in_thread(link: Link, place: Place, do: Callable[[Connection], T], *, dispose: bool = False) -> T:
    """`do` it on a connection of `link`, in a thread, since a link may have a loop of its own there."""
    ends: list[Any] = []

    def work() -> None:
        connection = link.connect()
        try:
            ends.append(do(connection))
        finally:
            connection.close()
            if dispose:
                link.dispose()

    failures: list[Exception] = []

    def serve() -> None:
        try:
            link.serve(work)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=serve, name="interlock-store-opening")
    thread.start()
    thread.join()
    if failures:
        link.dispose()
        error = failures[0]
        raise error if isinstance(error, InterlockError) else place.refused(error) from None
    answer: T = ends[0]
    return answer
