"""Runs that an earlier life of an `interlock run` left half way: `--resume` goes on with them from their journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ..journal.fingerprint import fingerprint_of
from ..settings import RuntimeSettings
from ..store.opening import read_store
from ..store.place import Place
from ..store.run_reads import left_runs

if TYPE_CHECKING:
    from ..pipeline_job import PipelineJob


class LeftRuns:
    """By what they were called with. The ids of runs carry a mark of the output's name, so that a run which a program
    or another file began with the same arguments is left alone."""

    def __init__(self, pipeline: str, output: Path) -> None:
        self._pipeline = pipeline
        self._prefix = f"{pipeline}-{sha256(output.name.encode('utf-8', 'surrogateescape')).hexdigest()[:4]}"
        self._found: dict[str, list[str]] = {}

    def new_id(self) -> str:
        return f"{self._prefix}{uuid4().hex[:12]}"

    async def find(self, settings: RuntimeSettings) -> None:
        store = settings.store
        if store is None or settings.journal is not True or Place.of(store).in_memory:
            return
        self._found = await asyncio.to_thread(
            read_store, store, lambda c: left_runs(c, pipeline=self._pipeline, prefix=self._prefix)
        )

    def take(self, job: Callable[[], PipelineJob[Any]]) -> str | None:
        """The latest such run of this call, once; None where there is none."""
        if not self._found:
            return None
        try:
            found = self._found.get(fingerprint_of(job()))
        except Exception:  # what is wrong with the call is told when it is run
            return None
        return found.pop() if found else None
