"""Decisions: what a temperature that was fitted makes of an answer, beside what the model had said."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("calls", sa.Column("decision", sa.Text))
