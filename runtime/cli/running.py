"""`interlock run`: one run a line, a window of them at a time, until the end or Ctrl-C."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from interlock.errors import (
    ConfigurationError,
    CredentialError,
    InterlockError,
    ModelResolutionError,
    SpendCapExceededError,
    StoreError,
    UnpricedModelError,
)

from ..runtime import Runtime
from ..settings import RuntimeSettings
from .arguments import Arguments
from .catalog import load_catalog
from .failing import sentence
from .lines import BadLineError, Id, Line, check, complain, read_lines
from .progress import ResultFile
from .target import load_pipeline

if TYPE_CHECKING:
    from ..pipeline_job import Pipeline

#: What is wrong with the set-up rather than with a line: it would fail every line alike.
_OF_THE_SETUP = (ConfigurationError, ModelResolutionError, CredentialError, UnpricedModelError, StoreError)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    pipeline: str
    input: Path
    output: Path
    resume: bool = False
    overwrite: bool = False
    skip_bad: bool = False
    max_cost: str | None = None
    limit: int | None = None
    concurrency: int = 64
    catalog: Path | None = None
    store: str = "sqlite:///interlock.db"

    def again(self) -> str:
        """The command line that goes on with what this one left."""
        words = [
            "interlock",
            "run",
            self.pipeline,
            "--input",
            str(self.input),
            "--output",
            str(self.output),
            "--resume",
        ]
        for flag, value in (("--max-cost", self.max_cost), ("--limit", self.limit), ("--catalog", self.catalog)):
            words += [flag, str(value)] if value is not None else []
        words += ["--skip-bad"] if self.skip_bad else []
        words += ["--store", self.store] if self.store != RunOptions.store else []
        return shlex.join(words)


def run_file(options: RunOptions) -> int:
    """The exit code: 0 all good, 1 a line failed or was left, 130 stopped by Ctrl-C. Raises for a wrong set-up."""
    pipeline = load_pipeline(options.pipeline)
    arguments = Arguments.of(pipeline.function, str(pipeline.name))
    checked = check(options.input, arguments.fill)
    if checked.bad and not options.skip_bad:
        complain(options.input, checked.bad)
    settings = RuntimeSettings(catalog=load_catalog(options.catalog), store=options.store, cost_cap=options.max_cost)
    with ResultFile(options.output) as results:
        results.open(resume=options.resume, overwrite=options.overwrite)
        work = FileRun(options, pipeline, arguments, results, bad=checked.bad, total=checked.good)
        try:
            asyncio.run(work.run(settings))
        except KeyboardInterrupt:  # the second Ctrl-C: what was in flight is cancelled, what was done is kept
            work.interrupted = True
        if work.fatal is not None and not results.done:
            results.discard()
            raise work.fatal
        results.finish(result_id(line, checked.bad) for line in read_lines(options.input))
        if work.fatal is not None:  # what was done before stays done
            raise work.fatal
        return work.tell()


def result_id(line: Line | BadLineError, bad: dict[int, str]) -> Id:
    """What a line's result is kept under: a bad line's id cannot be trusted, so it goes by its place."""
    return f"line {line.number}" if isinstance(line, BadLineError) or line.number in bad else line.id


class FileRun:
    """The lines of one file, each a run of the pipeline."""

    def __init__(
        self,
        options: RunOptions,
        pipeline: Pipeline[Any, Any],
        arguments: Arguments,
        results: ResultFile,
        *,
        bad: dict[int, str],
        total: int,
    ) -> None:
        self._options, self._pipeline, self._arguments, self._results = options, pipeline, arguments, results
        self._bad = bad
        self.total = total
        self.begun = self.succeeded = self.failed = 0
        self.already = len(results.done)
        self.fatal: InterlockError | None = None
        self.capped: SpendCapExceededError | None = None
        self.interrupted = False
        self._stopping = asyncio.Event()
        self._cost = ""

    async def run(self, settings: RuntimeSettings) -> None:
        from .watching import watched

        async with Runtime(settings) as runtime:
            with self._interrupts():
                async with watched(self, runtime):
                    await self._all(runtime)
            costs = runtime.statistics().cost
            self._cost = ", ".join(f"{amount:.4f} {currency}" for currency, amount in costs.items())

    async def _all(self, runtime: Runtime) -> None:
        room = asyncio.Semaphore(self._options.concurrency)
        async with asyncio.TaskGroup() as group:
            for line in self._lines():
                await room.acquire()
                if self._stopping.is_set():
                    break
                self.begun += 1
                group.create_task(self._one(runtime, line, room))

    def _lines(self) -> Iterator[Line]:
        """The lines still to be run, as many as asked for. Bad ones are reported on the way."""
        left = self._options.limit
        for line in read_lines(self._options.input):
            if left == 0:
                return
            if line.number in self._bad:
                self._report_bad(line)
            elif isinstance(line, Line) and line.id not in self._results.done:
                yield line
                left = None if left is None else left - 1

    def _report_bad(self, line: Line | BadLineError) -> None:
        error = {"code": BadLineError.code, "message": self._bad[line.number]}
        self._keep({"id": result_id(line, self._bad), "line": line.number, "error": error})

    async def _one(self, runtime: Runtime, line: Line, room: asyncio.Semaphore) -> None:
        run_id = f"{self._pipeline.name}-{uuid4().hex[:12]}"
        try:
            output = _plain(await runtime.run(self._pipeline(**self._arguments.fill(line)), run_id=run_id))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failed(line, run_id, error)
        else:
            self.succeeded += 1
            self._keep({"id": line.id, "line": line.number, "run": run_id, "output": output})
        finally:
            room.release()

    def _failed(self, line: Line, run_id: str, error: Exception) -> None:
        if isinstance(error, _OF_THE_SETUP) and not self.succeeded:
            self.fatal = self.fatal or error
            self._stopping.set()
            return
        if isinstance(error, SpendCapExceededError):
            self.capped = self.capped or error
            self._stopping.set()
        self.failed += 1
        code = getattr(error, "code", "") or type(error).__name__
        told = {"code": code, "message": sentence(error)}
        self._keep({"id": line.id, "line": line.number, "run": run_id, "error": told})

    def _keep(self, result: dict[str, Any]) -> None:
        self._results.add(result)

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """The first Ctrl-C stops beginning; the second is Python's own, and cancels what is in flight."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            self.interrupted = True
            self._stopping.set()
            loop.remove_signal_handler(signal.SIGINT)
            print("Finishing what is in flight. Ctrl-C again cancels it.", file=sys.stderr)

        try:
            loop.add_signal_handler(signal.SIGINT, stop)
        except (NotImplementedError, RuntimeError, ValueError):  # not the main thread, or no such signals here
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def tell(self) -> int:
        """Say how it went, and how to go on where something is left."""
        left = self.total - len(self._results.done)
        parts = [f"{self.succeeded} of {self.total} lines done"]
        parts += [f"{self.already} were done before"] if self.already else []
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{len(self._bad)} bad lines left out"] if self._bad else []
        parts += [self._cost] if self._cost else []
        lines = [f"{'; '.join(parts)}. Results: {self._options.output}"]
        if self.interrupted:
            lines.append("Stopped by Ctrl-C.")
        if self.capped is not None:
            lines.append(f"Stopped at the cost cap: {sentence(self.capped)}")
        if left > 0:
            lines.append(f"{left} lines are left. Go on with: {self._options.again()}")
        print("\n".join(lines), file=sys.stderr)
        if self.interrupted:
            return 130
        return int(self.failed > 0 or self.capped is not None)


def _plain(value: Any) -> Any:
    """The result as JSON values. Raises ConfigurationError for what has no such form."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value, fallback=_arrays)
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise OutputError(f"the result cannot be written as JSON: {error}") from None


def _arrays(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


class OutputError(InterlockError):
    """A pipeline's result that has no JSON form."""

    code = "output"
