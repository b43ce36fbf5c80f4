"""The journal: what a run needs to be queued, taken over and resumed; its steps; and who is alive."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    _runs()
    op.create_table(
        "steps",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("step_id", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("value", sa.Text),
        sa.Column("error_code", sa.Text),
        sa.Column("requests", sa.Text),
        sa.Column("again", sa.Text, nullable=False),
        sa.Column("begun_at", sa.Text),
        sa.Column("ended_at", sa.Text),
        sa.Column("copied", sa.Boolean, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("repeats", sa.Integer, nullable=False),
    )
    op.create_table(
        "owners",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("pid", sa.BigInteger, nullable=False),
        sa.Column("born", sa.Text, nullable=False),
        sa.Column("ttl_s", sa.Float, nullable=False),
        sa.Column("epoch", sa.Text, nullable=False),
        sa.Column("seen", sa.Float, nullable=False),
        sa.Column("lost", sa.Boolean, nullable=False),
    )
    op.create_table(
        "commits",
        sa.Column("writer", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("at", sa.Text, nullable=False),
    )


def _runs() -> None:
    with op.batch_alter_table("runs") as runs:
        runs.alter_column("started_at", existing_type=sa.Text, nullable=True)  # a queued run has not started
        runs.add_column(sa.Column("target", sa.Text))
        runs.add_column(sa.Column("fingerprint", sa.Text, nullable=False, server_default=""))
        runs.add_column(sa.Column("arguments", sa.Text))
        runs.add_column(sa.Column("value", sa.Text))
        runs.add_column(sa.Column("priority", sa.BigInteger, nullable=False, server_default="0"))
        runs.add_column(sa.Column("workflow", sa.Text, nullable=False, server_default=""))
        runs.add_column(sa.Column("owner", sa.Text))
        runs.add_column(sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"))
        for name in ("created_at", "claimed_at", "not_before", "pause_requested_at", "cancel_requested_at"):
            runs.add_column(sa.Column(name, sa.Text))
    op.execute("UPDATE runs SET created_at = started_at")
    op.create_index("runs_by_status", "runs", ["status", "created_at"])
    op.create_index("runs_by_time", "runs", ["created_at"])
    op.create_index("runs_by_owner", "runs", ["owner"])
