"""A pipeline called is a job value: its function and its arguments. It holds nothing and has no timeout."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from .job import Job

if TYPE_CHECKING:
    from .context import PipelineContext
    from .dispatcher import Dispatcher
    from .execution import Execution

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class PipelineJob(Job[R_co]):
    """What calling a pipeline gives. `run` and `submit` of a Runtime or of a context take it like any job."""

    def __init__(self, pipeline: Pipeline[Any, R_co], arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        self.pipeline, self.arguments, self.keywords = pipeline, arguments, dict(keywords)
        self.timeout_s = None
        self.priority = pipeline.priority

    @property
    def job_name(self) -> str:
        return str(self.pipeline.name)

    def context(self, dispatcher: Dispatcher, execution: Execution[Any]) -> PipelineContext:
        from .context import PipelineContext

        return PipelineContext.of(dispatcher, execution)

    async def run(self, resources: PipelineContext) -> R_co:
        over = await resources.opened() if resources.begins else None
        if over is None:
            return await self.pipeline.function(resources, *self.arguments, **self.keywords)
        if over.error is not None:
            raise over.error
        result: Any = over.value
        return result  # type: ignore[no-any-return]

    def _identity(self) -> Any:
        """Its arguments by their names: `triage(t)` and `triage(ticket=t)` are one call."""
        try:
            return dict(
                inspect.signature(self.pipeline.function).bind(None, *self.arguments, **self.keywords).arguments
            )
        except (TypeError, ValueError):
            return self.arguments, self.keywords

    def __repr__(self) -> str:
        given = [repr(value) for value in self.arguments]
        given += [f"{name}={value!r}" for name, value in self.keywords.items()]
        return f"{self.job_name}({', '.join(given)})"


class Pipeline(Generic[P, R_co]):
    """A function declared with `@pipeline`. Calling it runs nothing: it makes the job."""

    def __init__(
        self,
        function: Callable[Concatenate[PipelineContext, P], Awaitable[R_co]],
        *,
        name: str | None = None,
        version: str = "",
        priority: int = 0,
    ) -> None:
        self.function = function
        self.name = name or getattr(function, "__name__", "pipeline")
        self.version, self.priority = version, priority
        self.__name__ = self.name
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> PipelineJob[R_co]:
        return PipelineJob(self, args, kwargs)

    def __repr__(self) -> str:
        return f"<pipeline {self.name}>"


@overload
def pipeline(function: Callable[Concatenate[PipelineContext, P], Awaitable[R]], /) -> Pipeline[P, R]: ...
@overload
def pipeline(
    *, name: str | None = None, version: str = "", priority: int = 0
) -> Callable[[Callable[Concatenate[PipelineContext, P], Awaitable[R]]], Pipeline[P, R]]: ...
def pipeline(function: Any = None, /, *, name: str | None = None, version: str = "", priority: int = 0) -> Any:
    """Declare an `async def` whose first parameter is a PipelineContext as a pipeline.

        @pipeline
        async def triage(ctx: PipelineContext, ticket: Ticket) -> Triage: ...

    `name` is what it is called in records and shares fairly as (default: the function's); `version` is recorded with
    its runs; `priority` is that of its jobs.
    """
    if function is None:
        return lambda declared: Pipeline(declared, name=name, version=version, priority=priority)
    return Pipeline(function)
