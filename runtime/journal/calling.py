"""A pipeline's call as names and JSON, and back: how a run is begun in one process and gone on with in another."""

from __future__ import annotations

import importlib
import sys
from datetime import datetime
from typing import Any

from interlock.errors import ConfigurationError, ReplayMismatchError, UnencodableError

from ..pipeline_job import Pipeline, PipelineJob
from .codec import dumps, loads
from .fingerprint import fingerprint_of
from .protocol import RunHead


class NotHereError(ConfigurationError):
    """A run's pipeline cannot be imported in this process. Another may have it."""


def head_of(
    job: PipelineJob[Any],
    *,
    run_id: str,
    started_at: datetime,
    cost_cap: str | None = None,
    priority: int = 0,
    workflow: str = "",
) -> RunHead:
    return RunHead(
        run_id=run_id,
        pipeline=job.job_name,
        started_at=started_at,
        target=target_of(job.pipeline),
        version=job.pipeline.version,
        fingerprint=fingerprint_of(job),
        arguments=_arguments(job),
        cost_cap=cost_cap,
        priority=priority,
        workflow=workflow,
    )


def target_of(pipeline: Pipeline[Any, Any]) -> str | None:
    """`module:name`; None for a pipeline that cannot be imported, such as one made inside a function."""
    name = getattr(pipeline.function, "__qualname__", "")
    module = pipeline.__module__
    found = getattr(sys.modules.get(module), name, None) if name.isidentifier() else None
    return f"{module}:{name}" if found is pipeline else None


def _arguments(job: PipelineJob[Any]) -> str | None:
    try:
        return dumps({"args": list(job.arguments), "kwargs": job.keywords}, f"the arguments of {job.job_name}")
    except UnencodableError:
        return None  # it runs all the same; to go on with it elsewhere takes the job itself


def pipeline_of(head: RunHead, pipeline: Pipeline[Any, Any] | None = None) -> PipelineJob[Any]:
    """The job a run was begun with; of `pipeline`, where that is given, instead of the one it names.

    Raises ConfigurationError saying what of it cannot be had again, UnencodableError for arguments that its code does
    not know any more.
    """
    lacking = f"run {head.run_id!r} cannot be begun again from its record alone"
    if head.arguments is None or (head.target is None and pipeline is None):
        what = "its arguments are not data" if head.arguments is None else "its pipeline is not at the top of a module"
        raise ConfigurationError(f"{lacking}: {what}. Give the job: runtime.resume(run_id, {head.pipeline}(...))")
    if pipeline is None:
        assert head.target is not None
        pipeline = _imported(head.target, lacking)
    given = loads(head.arguments, f"the arguments of run {head.run_id!r}")
    return PipelineJob(pipeline, tuple(given["args"]), given["kwargs"])


def _imported(target: str, lacking: str) -> Pipeline[Any, Any]:
    module, _, name = target.partition(":")
    try:
        pipeline = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # a module that is loaded may raise anything
        said = str(error) if isinstance(error, (ImportError, AttributeError)) else f"{type(error).__name__}: {error}"
        raise NotHereError(
            f"{lacking}: {target} is not there ({said}). Import it first, as `interlock worker FILE` does, or say where"
            f" it is now: `interlock runs resume RUN FILE:{name}`"
        ) from None
    if not isinstance(pipeline, Pipeline):
        raise NotHereError(f"{lacking}: {target} is no pipeline any more")
    return pipeline


def check_same(recorded: RunHead, now: RunHead, *, version: bool = True) -> None:
    """Raises ReplayMismatchError where the run was begun as something else. The version is compared first."""
    if version and recorded.version != now.version:
        raise ReplayMismatchError(
            f"run {recorded.run_id!r} was begun with version {recorded.version!r} of pipeline {recorded.pipeline}, and"
            f" this is version {now.version!r}: go on with it where that version is, or begin a run of another id"
        )
    if recorded.pipeline != now.pipeline:
        raise ReplayMismatchError(
            f"run {recorded.run_id!r} is a run of pipeline {recorded.pipeline}, not of {now.pipeline}: give each run an"
            " id of its own"
        )
    if recorded.fingerprint != now.fingerprint:
        raise ReplayMismatchError(
            f"run {recorded.run_id!r} was begun with other arguments: recorded is {recorded.fingerprint}, given"
            f" {now.fingerprint}. Give each run an id of its own"
        )
