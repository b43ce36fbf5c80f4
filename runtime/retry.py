"""Whether a failed attempt is run again, and when. Pure: the jitter is an argument.

Two kinds of further attempts exist. A *re-run* answers what a provider could not do just now (429, 529, 5xx, a lost
connection) and counts against the job's `upstream_retries`. A *second asking* answers what the model did wrong (a wrong
shape, an answer cut off): it is the job's own doing (`Job.asked_again`) or a raised limit, and counts there.
"""

from __future__ import annotations

from dataclasses import dataclass

from interlock.errors import RateLimitedError, UpstreamError

#: Seconds. A longer hint closes the pool but for one probe at a time, and a refused probe costs its job no retry.
LONGEST_HELD_HINT_S = 60.0


@dataclass(frozen=True, slots=True)
class Rerun:
    """Run the job again `delay_s` seconds from now; `counted` says whether it uses up a retry."""

    delay_s: float
    counted: bool = True


def decide_rerun(
    error: BaseException, *, retries_used: int, retries_allowed: int, jitter: float, probing: bool = False
) -> Rerun | None:
    """The re-run that answers `error`, or None where it is final. `jitter` is uniform in [0, 1) and only ever adds.

    After a 429 the pool's own hold is the delay; one with a hint above a minute, or of a job that went as a closed
    pool's probe (`probing`), costs no retry. Everything else waits its own interval, doubled with each retry from the
    error's first to its longest, stretched by up to as much again.
    """
    if not isinstance(error, UpstreamError) or not error.retryable:
        return None
    hint = error.retry_after_s or 0.0
    if isinstance(error, RateLimitedError) and (probing or hint > LONGEST_HELD_HINT_S):
        return Rerun(0.0, counted=False)
    if retries_used >= retries_allowed:
        return None
    if error.jitter_s is None:
        return Rerun(0.0)
    first, longest = error.jitter_s
    interval = min(first * 2.0 ** min(retries_used, 32), longest)
    return Rerun(max(interval * (1.0 + jitter), min(hint, LONGEST_HELD_HINT_S)))
