"""The records as they were first released: calls, runs, the levels of pools.

A file of that release was made without migrations. It is taken over as this version (see `migrating`).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

Counted = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _calls()
    op.create_table(
        "levels",
        sa.Column("pool", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("saved_at", sa.Text, nullable=False),
        sa.Column("closed", sa.Boolean, nullable=False),
        sa.Column("memory", sa.Text, nullable=False),
        sa.Column("others", sa.Text),
    )
    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("started_at", sa.Text, nullable=False),
        sa.Column("ended_at", sa.Text),
        sa.Column("error_code", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("cost_cap", sa.Text),
    )


def _calls() -> None:
    op.create_table(
        "calls",
        sa.Column("id", Counted, primary_key=True),
        sa.Column("run_id", sa.Text),
        sa.Column("step_id", sa.Text),
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("workflow", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("call", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("wire_model_id", sa.Text, nullable=False),
        sa.Column("served_model", sa.Text),
        sa.Column("request_id", sa.Text),
        sa.Column("input_tokens", sa.BigInteger),
        sa.Column("output_tokens", sa.BigInteger),
        sa.Column("cache_read_tokens", sa.BigInteger),
        sa.Column("cache_write_tokens", sa.BigInteger),
        sa.Column("cache_write_1h_tokens", sa.BigInteger),
        sa.Column("reasoning_tokens", sa.BigInteger),
        sa.Column("usage_estimated", sa.Boolean, nullable=False),
        sa.Column("cost", sa.Text),
        sa.Column("currency", sa.Text),
        sa.Column("price_as_of", sa.Text),
        sa.Column("catalog_version", sa.Text, nullable=False),
        sa.Column("waited_s", sa.Float, nullable=False),
        sa.Column("waited", sa.Text, nullable=False),
        sa.Column("started_at", sa.Text, nullable=False),
        sa.Column("latency_s", sa.Float, nullable=False),
        sa.Column("first_piece_s", sa.Float),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("stop_reason", sa.Text),
        sa.Column("unmetered", sa.Boolean, nullable=False),
        sa.Column("undeclared", sa.Boolean, nullable=False),
        sa.Column("request_hash", sa.Text, nullable=False),
        sa.Column("text", sa.Text),
    )
    op.create_index("calls_by_time", "calls", ["started_at"])
    op.create_index("calls_by_run", "calls", ["run_id", "step_id"])
