"""`interlock run`: one run a line, a window of them at a time, until the end or Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from interlock.errors import (
    AdmissionError,
    ConfigurationError,
    CredentialError,
    InterlockError,
    ModelResolutionError,
    ReplayMismatchError,
    RunHeldError,
    SpendCapExceededError,
    StoreError,
    UndeclaredResourceError,
    UnpricedModelError,
    code_of,
)

from ..ledger import STORE
from ..runtime import Runtime
from ..settings import RuntimeSettings
from ..store.place import Place
from .arguments import Arguments
from .catalog import load_catalog
from .configuring import NewStore, check_currency, checked_cap, configured, dispose
from .interrupts import Interrupts
from .left import LeftRuns
from .lines import BadLineError, Id, Line, check, check_same_input, complain, read_lines
from .places import check_places
from .progress import ResultFile
from .target import load_function, load_pipeline
from .telling import Failures, in_the_commands_words, summary, told

if TYPE_CHECKING:
    from ..pipeline_job import Pipeline, PipelineJob

#: What is wrong with the set-up rather than with a line: it would fail every line alike.
_OF_THE_SETUP = (
    ConfigurationError,
    ModelResolutionError,
    CredentialError,
    UnpricedModelError,
    StoreError,
    UndeclaredResourceError,
)
#: Seconds between two looks at which lines can still be dropped, once a run stops early.
LOOK_AGAIN_S = 0.2


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
    ledger: str | None = None
    configure: str | None = None
    verbose: bool = False

    def again(self) -> str:
        """The command line that goes on with what this one left."""
        words = ["interlock", "run", self.pipeline, "--input", str(self.input), "--output", str(self.output)]
        words.append("--resume")
        more = {
            "--max-cost": self.max_cost,
            "--limit": self.limit,
            "--catalog": self.catalog,
            "--ledger": None if self.ledger is None or self.ledger == STORE else Place.of(self.ledger).name,
            "--configure": self.configure,
        }
        for flag, value in more.items():
            words += [flag, str(value)] if value is not None else []
        words += ["--ledger", STORE] if self.ledger == STORE else []
        words += ["--skip-bad"] if self.skip_bad else []
        words += ["--store", Place.of(self.store).name] if self.store != RunOptions.store else []
        return shlex.join(words)


def run_file(options: RunOptions) -> int:
    """The exit code: 0 all good, 1 a line failed or was left, 130 stopped by Ctrl-C, 143 by SIGTERM. Raises for a wrong
    set-up."""
    if options.verbose:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("interlock").setLevel(logging.DEBUG)  # ours alone: others log requests as they are
    checked_cap(options.max_cost)
    check_places({"the input": options.input, "the catalog": options.catalog}, {"--output": options.output})
    pipeline = load_pipeline(options.pipeline)
    configure = None if options.configure is None else load_function(options.configure)
    arguments = Arguments.of(pipeline.function, str(pipeline.name))
    checked = check(options.input, arguments.fill)
    if checked.bad and not options.skip_bad:
        complain(options.input, checked.bad)
    settings = RuntimeSettings(
        catalog=load_catalog(options.catalog), store=options.store, ledger=options.ledger, cost_cap=options.max_cost
    )
    with ResultFile(options.output) as results:
        results.open(resume=options.resume, overwrite=options.overwrite)
        check_same_input(options.input, options.output, checked.ids, results.done)
        if not checked.good and not checked.bad:
            print(f"{options.input} has no lines: nothing was run, nothing was written.", file=sys.stderr)
            return 0
        work = FileRun(options, pipeline, arguments, results, bad=checked.bad, total=checked.good)
        try:
            asyncio.run(work.run(settings, configure))
        except KeyboardInterrupt:  # the third Ctrl-C, or the second where signals are not ours: at once
            work.interrupts.asked = signal.SIGINT
        if work.fatal is not None and not work.succeeded:
            raise in_the_commands_words(work.fatal)  # what was there before is as it was
        results.finish(result_id(line, checked.bad) for line in read_lines(options.input))
        if work.fatal is not None:  # what was done before stays done
            raise in_the_commands_words(work.fatal)
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
        self.succeeded = 0
        self.already = len(results.done)
        self.failures = Failures()
        self.fatal: InterlockError | None = None
        self.capped: SpendCapExceededError | None = None
        self.interrupts = Interrupts(self._dropping)
        self._stopping = asyncio.Event()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._begun: set[str] = set()
        self._left = LeftRuns(str(pipeline.name), options.output)
        self._cost = ""

    @property
    def failed(self) -> int:
        return self.failures.count

    async def run(self, settings: RuntimeSettings, configure: Callable[..., Any] | None = None) -> None:
        from .watching import watched

        settings = await configured(settings, configure, self._options.configure or "")
        check_currency(settings)
        store = NewStore(settings.store)
        try:
            async with Runtime(settings) as runtime:
                if self._options.resume:
                    await self._left.find(settings)
                lines = asyncio.ensure_future(self._all(runtime))
                try:
                    with self.interrupts.heard(lines):
                        async with watched(self, runtime):
                            await self.interrupts.until_done(lines)
                finally:
                    costs = runtime.statistics().cost
                    self._cost = ", ".join(f"{amount:.4f} {currency}" for currency, amount in costs.items())
        finally:
            await dispose(settings)
            if not self.succeeded:
                store.leave_nothing(self._begun)

    async def _all(self, runtime: Runtime) -> None:
        room = asyncio.Semaphore(self._options.concurrency)
        dropping = asyncio.create_task(self._drop_unsent(runtime))
        try:
            async with asyncio.TaskGroup() as group:
                for line in self._lines():
                    await room.acquire()
                    if self._stopping.is_set():
                        break
                    left = self._left.take(partial(self._job, line))
                    run_id = left or self._new_run()
                    self._under_way[run_id] = group.create_task(self._one(runtime, line, run_id, room, left=left))
        except* ConfigurationError as errors:  # the input cannot be read any more
            self._give_up(_first(errors))
        finally:
            dropping.cancel()

    def _dropping(self) -> None:
        """No line is begun any more, and those that wait and have sent nothing are let go."""
        self._stopping.set()

    async def _drop_unsent(self, runtime: Runtime) -> None:
        await self._stopping.wait()
        while True:
            if self.fatal is not None or self.interrupts.pressed:
                for run_id in runtime.unsent_runs() & self._under_way.keys():
                    self._under_way[run_id].cancel()
            await asyncio.sleep(LOOK_AGAIN_S)

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

    def _job(self, line: Line) -> PipelineJob[Any]:
        return self._pipeline(**self._arguments.fill(line))

    def _new_run(self) -> str:
        run_id = self._left.new_id()
        self._begun.add(run_id)
        return run_id

    async def _one(
        self, runtime: Runtime, line: Line, run_id: str, room: asyncio.Semaphore, *, left: str | None
    ) -> None:
        try:
            job = self._job(line)
            try:
                value = await (runtime.run(job, run_id=run_id) if left is None else runtime.resume(run_id, job))
            except (ReplayMismatchError, RunHeldError):
                if left is None:
                    raise
                task, run_id = self._under_way.pop(run_id), self._new_run()  # the pipeline has changed since: anew
                self._under_way[run_id] = task
                value = await runtime.run(job, run_id=run_id)
            output = plain(value)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failed(line, run_id, error)
        else:
            self.succeeded += 1
            known = {} if line.digest is None else {"input": line.digest}
            self._keep({"id": line.id, "line": line.number, "run": run_id, **known, "output": output})
        finally:
            del self._under_way[run_id]
            room.release()

    def _failed(self, line: Line, run_id: str, error: Exception) -> None:
        if _is_of_the_setup(error) and not self.succeeded:
            self._give_up(error)
            return
        if isinstance(error, SpendCapExceededError):
            self.capped = self.capped or error
            self._stopping.set()
        code = code_of(error)
        message = told(error)
        self.failures.add(line.number, code, message)
        failed = {"code": code, "message": message}
        self._keep({"id": line.id, "line": line.number, "run": run_id, "error": failed})

    def _give_up(self, error: InterlockError) -> None:
        self.fatal = self.fatal or error
        self._dropping()

    def _keep(self, result: dict[str, Any]) -> None:
        try:
            self._results.add(result)
        except ConfigurationError as error:  # the disk is full, say: what is done from now on would be lost
            self._give_up(error)

    def tell(self) -> int:
        """Say how it went, and how to go on where something is left."""
        print(
            summary(
                succeeded=self.succeeded,
                total=self.total,
                already=self.already,
                failures=self.failures,
                bad=len(self._bad),
                cost=self._cost,
                output=self._options.output,
                written=bool(self._results.done or self._results.failed),
                interrupted=self.interrupts.asked,
                capped=self.capped,
                left=self.total - len(self._results.done),
                again=self._options.again(),
            ),
            file=sys.stderr,
        )
        if self.interrupts.asked is not None:
            return 128 + self.interrupts.asked
        return int(self.failed > 0 or self.capped is not None)


def _first(errors: BaseExceptionGroup[ConfigurationError]) -> ConfigurationError:
    first = errors.exceptions[0]
    return first if isinstance(first, ConfigurationError) else _first(first)


def _is_of_the_setup(error: Exception) -> TypeGuard[InterlockError]:
    # A cap in another currency than the prices is an AdmissionError and nothing narrower.
    return isinstance(error, _OF_THE_SETUP) or type(error) is AdmissionError


def plain(value: Any) -> Any:
    """The result as JSON values. Raises ConfigurationError for what has no such form."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        plain = to_jsonable_python(value, fallback=_arrays)
        json.dumps(plain, allow_nan=False)  # NaN and infinity have no form in JSON
        return plain
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise OutputError(f"the result cannot be written as JSON: {error}") from None


def _arrays(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


class OutputError(InterlockError):
    """A pipeline's result that has no JSON form."""

    code = "output"
