"""Job[R]: one piece of work that declares what it needs, holds it exactly while it runs, and gives an R."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from interlock.errors import ConfigurationError

if TYPE_CHECKING:
    from .requirements import JobRequirements

R_co = TypeVar("R_co", covariant=True)


class Job(Generic[R_co]):
    """A frozen dataclass or pydantic model: its fields are its arguments.

    `requirements` declares, once per attempt; `run` does the work with what was granted, and may be called again after
    a failure of a provider. An `async def run(self, resources: JobResources)` runs on the event loop; a plain
    `def run(self, resources: BlockingResources)` in a thread, which is interrupted only where it uses them: Python
    cannot stop a thread.

    What follows is set on the class or on the instance. `timeout_s` counts from the grant to the delivery, in seconds
    of running (None: no limit); `upstream_retries` are the re-runs after the first; `priority`: higher goes first;
    `workflow` is who it shares fairly with (default: its pipeline's name); `max_wait_s` is how long it may stand in the
    line; `overflow="proceed"` sends it unmetered instead of refusing it.
    """

    if TYPE_CHECKING:
        timeout_s: float | None
        upstream_retries: int
        priority: int
        workflow: str
        max_wait_s: float | None
        overflow: Literal["fail", "proceed"]
    else:  # plain attributes without annotations: a dataclass or a pydantic model does not take them for its fields
        timeout_s = 1800.0
        upstream_retries = 3
        priority = 0
        workflow = ""
        max_wait_s = None
        overflow = "fail"

    def requirements(self, needs: JobRequirements) -> None:
        """Say what the job needs. Without a word it needs nothing and runs at once."""

    def run(self, resources: Any) -> Awaitable[R_co] | R_co:
        raise NotImplementedError(f"{type(self).__name__} has no run(resources)")

    def asked_again(self, error: BaseException) -> Job[R_co] | None:
        """The job that asks the model again after it answered wrongly, or None: then the failure stands."""
        return None

    def can_run_again(self) -> bool:
        """Whether another attempt would go unseen. False once a part of the result has been handed out."""
        return True

    def _identity(self) -> Any:
        """What its fingerprint in the journal is taken of; None: its fields."""
        return None

    def _answer_limit(self) -> str:
        """The limit of the answer it declares, apart from its identity: one cut off may be asked for at another."""
        return ""

    def _handed_out(self) -> Sequence[Any]:
        """Parts of its result that its reader has had already, whatever became of the rest."""
        return ()

    def _check_nameable(self) -> None:
        """Raises UnencodableError where its result could not be read back from the journal, before it is paid for."""

    def get_upstream_retries(self) -> int:
        return self.upstream_retries

    getUpstreamRetries = get_upstream_retries


def job_name(job: Job[Any]) -> str:
    """What a job is called in records and errors: its type, or its pipeline's name."""
    return getattr(job, "job_name", None) or type(job).__name__


def _is_seconds(value: object) -> bool:
    try:
        return isinstance(value, int | float) and float(value) >= 0  # NaN is not either
    except OverflowError:  # a whole number that no clock can be set to
        return False


def check_settings(job: Job[Any], priority: object, workflow: object) -> None:
    """Raises ConfigurationError for what a timer or the line could not be given."""
    for name in ("timeout_s", "max_wait_s"):
        value = getattr(job, name)
        if value is not None and not _is_seconds(value):
            raise ConfigurationError(f"{name} of job {job_name(job)} is None or seconds, 0 or more, not {value!r}")
    if not (isinstance(job.upstream_retries, int) and job.upstream_retries >= 0):
        raise ConfigurationError(
            f"upstream_retries of job {job_name(job)} is a whole number, 0 or more, not {job.upstream_retries!r}"
        )
    if not isinstance(priority, int):
        raise ConfigurationError(f"the priority of job {job_name(job)} is a whole number, not {priority!r}")
    if not isinstance(workflow, str):
        raise ConfigurationError(f"the workflow of job {job_name(job)} is a text, not {workflow!r}")
    if job.overflow not in ("fail", "proceed"):
        raise ConfigurationError(f'overflow of job {job_name(job)} is "fail" or "proceed", not {job.overflow!r}')
