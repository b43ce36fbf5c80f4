"""Interlock reserves model calls before it sends them.

    catalog/       which models exist: entries, limits, prices, grades, the picker
    credentials/   where secrets come from
    admission/     accounts, the line, the throttle: who may go, and when
    clients/       chat: conversation, response, the client template, one file a provider, the simulated provider
    embeddings/    text to vectors of one width
    decisions/     typed questions answered with probabilities
    runtime/       jobs, pipelines, records, the command line
    errors         every error, in one tree

A name is imported from here on first use, so `import interlock` loads neither an SDK nor a database driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any
