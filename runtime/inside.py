"""What modules of this package need of an open Runtime, and its users do not: reached here and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .context import PipelineContext
    from .dispatcher import Dispatcher
    from .runtime import Runtime


def dispatcher_of(runtime: Runtime | PipelineContext) -> Dispatcher:
    """What runs its jobs. InterlockError where the Runtime is not open."""
    from .context import PipelineContext

    return runtime._dispatcher if isinstance(runtime, PipelineContext) else runtime._open()
