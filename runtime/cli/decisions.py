"""`interlock decisions eval`: ask what is known already, and see how good and how sure the answers are.

Answers are kept as they come, in a file beside the input, so nothing that was paid for is asked twice: `--resume` goes
on with what is left, or shows the figures again where nothing is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from interlock.catalog import Catalog
from interlock.clients.extract import each_once
from interlock.decisions import Calibration, Question
from interlock.decisions.recorded import plain
from interlock.decisions.written import read_questions
from interlock.errors import ConfigurationError

from ..context import PipelineContext
from ..decisions_eval.evaluation import Answers, QuestionReport, calibration_of, evaluate, fitted_and_kept
from ..decisions_eval.kept import asked, check_kept
from ..decisions_eval.labelled import Example, LabelledLines
from ..decisions_eval.report import as_json, render
from ..model_calls import DecisionCall
from ..pipeline_job import Pipeline, pipeline
from ..settings import RuntimeSettings
from ..store.place import Place
from .arguments import Arguments
from .catalog import load_catalog
from .configuring import checked_cap
from .lines import BadLineError, Checked, Id, Line, check, check_same_input, complain, read_lines
from .places import check_drawing, check_places
from .progress import ResultFile
from .running import FileRun, RunOptions, result_id
from .screen import screen
from .target import load_function
from .telling import in_the_commands_words


@dataclass(frozen=True, kw_only=True)
class EvalOptions(RunOptions):
    """Of `interlock run`, and what is done with the answers."""

    pipeline: str = "decisions eval"
    questions: Path | None = None
    model: str | None = None
    precision: float = 0.95
    fit: Path | None = None
    as_json: bool = False
    plot: Path | None = None
    html: Path | None = None

    def again(self) -> str:
        """The command line that goes on with what this one left."""
        words = ["interlock", "decisions", "eval", "--input", str(self.input), "--output", str(self.output), "--resume"]
        more = {
            "--questions": self.questions,
            "--model": self.model,
            "--precision": None if self.precision == EvalOptions.precision else self.precision,
            "--fit": self.fit,
            "--plot": self.plot,
            "--html": self.html,
            "--max-cost": self.max_cost,
            "--limit": self.limit,
            "--catalog": self.catalog,
            "--configure": self.configure,
        }
        for flag, value in more.items():
            words += [flag, str(value)] if value is not None else []
        words += ["--skip-bad"] if self.skip_bad else []
        words += ["--store", Place.of(self.store).name] if self.store != RunOptions.store else []
        return shlex.join(words)


class LabelledArguments(Arguments):
    """What of a line is asked, as the arguments of `asking`."""

    def __init__(self, questions: Mapping[str, Question] | None) -> None:
        super().__init__("decisions eval", {}, {})
        self._lines = LabelledLines(questions)

    def example(self, line: Line) -> Example:
        """Raises BadLineError saying what does not fit."""
        try:
            return self._lines.read(line.number, line.value)
        except ValueError as error:
            raise BadLineError(line.number, str(error)) from None

    def fill(self, line: Line) -> dict[str, Any]:
        return self.example(line).arguments


def eval_file(options: EvalOptions) -> int:
    """The exit code, as of `interlock run`: 0 all good, 1 a line failed or was left, 130 Ctrl-C. Raises for a wrong
    set-up."""
    _check_options(options)
    configure = None if options.configure is None else load_function(options.configure)
    catalog = load_catalog(options.catalog)
    arguments = LabelledArguments(None if options.questions is None else load_questions(options.questions))
    checked = check(options.input, arguments.example)
    if checked.bad and not options.skip_bad:
        complain(options.input, checked.bad)
    if not checked.good:
        raise ConfigurationError(f"{options.input} has no labelled examples: nothing was asked")
    settings = RuntimeSettings(catalog=catalog, store=options.store, cost_cap=options.max_cost)
    with ResultFile(options.output) as results:
        results.open(resume=options.resume, overwrite=options.overwrite)
        check_same_input(options.input, options.output, checked.ids, results.done)
        _check_answers(options, arguments, results)
        code = _ask(options, arguments, checked, results, settings, configure)
        answered = f"{len(results.done):,} of {checked.good:,} examples"
    _show(options, arguments, catalog, whole=code == 0, answered=answered)
    return code


def _check_options(options: EvalOptions) -> None:
    if options.verbose:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("interlock").setLevel(logging.DEBUG)
    checked_cap(options.max_cost)
    if not 0 < options.precision <= 1:
        raise ConfigurationError(
            f"--precision is a share above 0 and at most 1, such as 0.95, not {options.precision:g}"
        )
    check_places(
        {"the input": options.input, "--questions": options.questions, "the catalog": options.catalog},
        {"--output": options.output, "--fit": options.fit, "--plot": options.plot, "--html": options.html},
    )
    check_drawing(plot=options.plot, html=options.html)
    if options.fit is not None and options.fit.exists():
        Calibration.load(options.fit)  # what cannot be added to is said before anything is asked


def load_questions(path: Path) -> dict[str, Question]:
    """Questions in the form of the System One wire, as JSON or YAML. Raises ConfigurationError naming the file."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            return read_questions(json.loads(text, object_pairs_hook=each_once))
        for node in _mappings(yaml.compose(text, yaml.SafeLoader)):
            each_once([(str(key.value), None) for key, _ in node.value])
        return read_questions(yaml.safe_load(text))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is no YAML: {' '.join(str(error).split())}") from None


def _mappings(node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    if isinstance(node, yaml.MappingNode):
        yield node
        for _, value in node.value:
            yield from _mappings(value)


def asking(model: str | None) -> Pipeline[Any, dict[str, Any]]:
    """One example as a run: its answers as plain values."""

    @pipeline(name="decisions-eval")
    async def labelled(ctx: PipelineContext, state: Any, questions: dict[str, Any]) -> dict[str, Any]:
        response = await ctx.run(DecisionCall(state, read_questions(questions), model=model))
        answers = {name: plain(answer) for name, answer in response.answers.items()}
        known = {"model": response.model, "served_model": response.served_model, "asked": asked(state, questions)}
        return {**known, **({} if model is None else {"wanted": model}), "answers": answers}

    return labelled


def _ask(
    options: EvalOptions,
    arguments: LabelledArguments,
    checked: Checked,
    results: ResultFile,
    settings: RuntimeSettings,
    configure: Any,
) -> int:
    """Ask what has no answer yet, and keep what comes."""
    work = FileRun(options, asking(options.model), arguments, results, bad=checked.bad, total=checked.good)
    if len(results.done) < checked.good:
        try:
            asyncio.run(work.run(settings, configure))
        except KeyboardInterrupt:  # the third Ctrl-C
            work.interrupts.asked = signal.SIGINT
        if work.fatal is not None and not work.succeeded:
            raise in_the_commands_words(work.fatal)
        results.finish(result_id(line, checked.bad) for line in read_lines(options.input))
        if work.fatal is not None:
            raise in_the_commands_words(work.fatal)
        return work.tell()
    results.finish(result_id(line, checked.bad) for line in read_lines(options.input))
    return 0


def _show(options: EvalOptions, arguments: LabelledArguments, catalog: Catalog, *, whole: bool, answered: str) -> None:
    """The figures of all that has been answered. A temperature is fitted only where all that was to be asked (--limit)
    was answered."""
    found = collect(options.input, options.output, arguments, catalog)
    reports = evaluate(found, precision=options.precision, fit=options.fit is not None and whole)
    if not reports:
        print("Nothing has been answered, so there is nothing to measure.", file=sys.stderr)
        return
    if options.as_json:
        print(json.dumps(as_json(reports, precision=options.precision), indent=2))
    else:
        screen().print(render(reports, precision=options.precision))
    _draw(options, reports)
    if options.fit is not None:
        _fit(options.fit, reports, whole, answered)


def _draw(options: EvalOptions, reports: tuple[QuestionReport, ...]) -> None:
    if options.plot is not None:
        from ..decisions_eval.picture import draw

        draw(reports, options.plot)
    if options.html is not None:
        from ..decisions_eval.page import write_page

        write_page(reports, options.html)


def _fit(file: Path, reports: tuple[QuestionReport, ...], whole: bool, answered: str) -> None:
    if not whole:
        print(
            f"No temperature was fitted and {file} is as it was: not all that was to be asked is answered, but "
            f"{answered}.",
            file=sys.stderr,
        )
        return
    known = Calibration.load(file) if file.exists() else Calibration()
    calibration = calibration_of(reports, known, datetime.now(UTC).date())
    calibration.save(file)
    fitted, stay = fitted_and_kept(reports, known)
    print(
        f"Fitted to the answers there are, {answered}: {', '.join(fitted)}."
        + (f" Of what was fitted before there stay: {', '.join(stay)}." if stay else "")
        + f" {file} has {len(calibration.fitted)}: RuntimeSettings(models=ModelSettings(calibration={str(file)!r}))"
        " applies them.",
        file=sys.stderr,
    )


def _check_answers(options: EvalOptions, arguments: LabelledArguments, results: ResultFile) -> None:
    """Whether earlier answers are those of these examples. Raises ConfigurationError where one is another's."""
    if results.source is None or not results.done:
        return
    for id, example, output in _pairs(options.input, results.source, arguments):
        try:
            check_kept(example, output, model=options.model)
        except ValueError as error:
            raise ConfigurationError(
                f"{results.source}: what is kept of {id!r} {error}. Go on with what it was made from, choose another "
                "--output, or --overwrite"
            ) from None


def _pairs(labelled: Path, answers: Path, arguments: LabelledArguments) -> Iterator[tuple[Id, Example, Any]]:
    """Each example that has an answer, in the order of the answers."""
    examples: dict[Id, Example] = {}
    for line in read_lines(labelled):
        if isinstance(line, Line):
            with suppress(BadLineError):
                examples[line.id] = arguments.example(line)
    for line in read_lines(answers):
        if isinstance(line, Line) and "output" in line.value and line.id in examples:
            yield line.id, examples[line.id], line.value["output"]


def collect(
    labelled: Path, output: Path, arguments: LabelledArguments, catalog: Catalog
) -> dict[tuple[str, str, Question], Answers]:
    """Answers and labels side by side, by question and model, in the order of the examples."""
    answered: dict[tuple[str, str, Question], Answers] = {}
    if not output.exists():
        return answered
    for _, example, told in _pairs(labelled, output, arguments):
        model = told["model"]
        wire = catalog.entries[model].wire_model_id if model in catalog.entries else ""
        for name, question in example.request.questions.items():
            known = answered.setdefault((name, model, question), Answers(question, wire))
            known.add(told["answers"][name], example.truths[name])
    return answered
