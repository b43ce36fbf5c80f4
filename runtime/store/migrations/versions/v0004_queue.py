"""The queue in its own order: a claim reads the rows it takes, however many wait behind them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.drop_index("runs_by_status", "runs")
    op.create_index("runs_to_claim", "runs", ["status", sa.text("priority DESC"), "created_at", "run_id"])
