"""What Alembic runs: the migrations, on the connection it is given, inside the transaction that is open on it."""

from __future__ import annotations

from alembic import context

from interlock.runtime.store.migrating import VERSION_TABLE
from interlock.runtime.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
