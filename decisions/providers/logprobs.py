"""`logprobs-decision`: any chat model behind the chat completions wire, read as a decision model.

`POST {base_url}/chat/completions`, one request a question and order of its options (`options: {rotations: 4}` of the
provider), at temperature 0: the options have letters, and the probabilities of the answer's first token are the
distribution. An entry that lists `logprobs` under `unsupported`, and a question of more than 20 options, are asked for
the distribution in words instead: one request, and the answer's `method` is `stated`.

The provider's `options: {limit_field: max_completion_tokens}` names the output limit as OpenAI does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from interlock.admission.outcome import Dimension, ReportedLimit
from interlock.catalog.entry import ModelEntry, ProviderSettings
from interlock.catalog.tokens import MESSAGE_TOKENS
from interlock.clients.extract import NotOneValue, one_value
from interlock.clients.hints import openai_limits
from interlock.errors import (
    ConfigurationError,
    MalformedResponseError,
    OutputTruncatedError,
    ProviderRefusalError,
    ResponseShapeError,
)

from .. import openai_wire, prompting
from ..abstract import DecisionAnswer
from ..http import HttpDecisionClient
from ..labels import MOST_LABELS, label_distribution, mean
from ..questions import Choice
from ..request import DecisionRequest
from ..response import Answer, ChoiceAnswer
from ..splitting import DecisionPart
from ..wire import decode_answers, decode_model

#: A letter, and what may stand before it.
LABEL_TOKENS = 4
#: A line of a distribution that is stated: its label, its number, the signs around them.
TOKENS_AN_OPTION, TOKENS_AROUND = 12, 40


class LogprobsDecisionClient(HttpDecisionClient):
    """A part is one question as a choice, in one order."""

    path: ClassVar[str] = "/chat/completions"
    version: ClassVar[str] = ""
    request_id_header: ClassVar[str | None] = "x-request-id"

    @classmethod
    def plan(
        cls, entry: ModelEntry, settings: ProviderSettings, request: DecisionRequest, count: Callable[[str], int]
    ) -> tuple[DecisionPart, ...]:
        parts = []
        for name, question in request.questions.items():
            choice = prompting.as_choice(question)
            stated = _is_stated(entry, choice)
            for turned in (choice,) if stated else prompting.orders(question, _rotations(settings)):
                parts.append(
                    DecisionPart(
                        request=request.asking({name: turned}),
                        input_tokens=count(prompting.prompt(request, turned) + _system(stated)) + 2 * MESSAGE_TOKENS,
                        output_tokens=_output_tokens(turned, stated),
                    )
                )
        return tuple(parts)

    @classmethod
    def output_tokens(cls, entry: ModelEntry, settings: ProviderSettings) -> int:
        return TOKENS_AROUND + MOST_LABELS * TOKENS_AN_OPTION if "logprobs" in entry.unsupported else LABEL_TOKENS

    def merge(
        self, request: DecisionRequest, answered: Sequence[tuple[DecisionPart, Mapping[str, Answer]]]
    ) -> dict[str, Answer]:
        merged: dict[str, Answer] = {}
        for name, question in request.questions.items():
            given = [answers[name] for _, answers in answered if name in answers]
            choices = [each for each in given if isinstance(each, ChoiceAnswer)]
            merged[name] = prompting.answer_to(
                question, mean([each.probabilities for each in choices]), choices[0].method
            )
        return merged

    def encode(self, request: DecisionRequest) -> dict[str, Any]:
        choice, entry = _choice(request), self.entry
        stated = _is_stated(entry, choice)
        wire: dict[str, Any] = {
            "model": entry.wire_model_id,
            "messages": [
                {"role": "system", "content": _system(stated)},
                {"role": "user", "content": prompting.prompt(request, choice)},
            ],
            self.environment.settings.options.get("limit_field", "max_tokens"): _output_tokens(choice, stated),
        }
        if "temperature" not in entry.unsupported:
            wire["temperature"] = 0
        if entry.thinking.mode != "none":
            wire["reasoning_effort"] = "none"
        if not stated:
            return {**wire, "logprobs": True, "top_logprobs": MOST_LABELS}
        if entry.structured == "native":
            schema = {"name": "distribution", "schema": prompting.distribution_schema(choice), "strict": True}
            wire["response_format"] = {"type": "json_schema", "json_schema": schema}
        return wire

    def read(self, body: dict[str, Any]) -> DecisionAnswer:
        return DecisionAnswer(
            body=body, usage=openai_wire.decode_usage(body, "prompt", "completion"), served_model=decode_model(body)
        )

    def decode(self, body: Any, request: DecisionRequest) -> dict[str, Answer]:
        (name, choice), said = next(iter(request.questions.items())), self._said(body)
        assert isinstance(choice, Choice)
        if _is_stated(self.entry, choice):
            given = prompting.as_answered(choice, self._stated(said, choice))
            answer = decode_answers({"answers": {name: given}}, request.questions)[name]
            assert isinstance(answer, ChoiceAnswer)
            return {name: prompting.answer_to(choice, answer.probabilities, "stated")}
        logprobs = said.get("logprobs")
        content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
        if not content and _is_cut(said):
            raise self._cut_off(LABEL_TOKENS, said)
        if not content:
            raise ResponseShapeError(
                f"{self.entry.id} answered without log-probabilities: list `logprobs` under its `unsupported` in the "
                "catalog, and it will be asked to state its distribution instead",
                model=self.entry.id,
            )
        labels = prompting.labelled(choice)
        found = label_distribution(content, tuple(labels)).probabilities
        return {name: prompting.answer_to(choice, {labels[label]: each for label, each in found.items()}, "logprobs")}

    def read_limits(self, headers: Mapping[str, str]) -> Mapping[Dimension, ReportedLimit]:
        return openai_limits(headers, now=self.environment.wall())

    def _said(self, body: Any) -> Mapping[str, Any]:
        """The first choice of a completion. Raises ProviderRefusalError where it is a refusal."""
        choices = body.get("choices")
        said = choices[0] if isinstance(choices, list) and choices else None
        message = said.get("message") if isinstance(said, Mapping) else None
        if not isinstance(said, Mapping) or not isinstance(message, Mapping):
            raise MalformedResponseError("the completion has no message")
        if message.get("refusal") or said.get("finish_reason") == "content_filter":
            category = "content_filter" if said.get("finish_reason") == "content_filter" else "refusal"
            raise ProviderRefusalError(f"{self.entry.id} will not answer", category=category, model=self.entry.id)
        return said

    def _stated(self, said: Mapping[str, Any], choice: Choice) -> Mapping[str, Any]:
        if _is_cut(said):  # the same again would be cut at the same place
            raise self._cut_off(_output_tokens(choice, stated=True), said)
        text = said["message"].get("content")
        try:
            value = one_value(text) if isinstance(text, str) else None
        except NotOneValue:  # its words quote the answer, which may quote the state
            value = None
        given = value.get("probabilities") if isinstance(value, Mapping) else None
        if not isinstance(given, Mapping):
            raise MalformedResponseError("the answer is not one JSON object with `probabilities`")
        return given

    def _cut_off(self, limit: int, said: Mapping[str, Any]) -> OutputTruncatedError:
        silent = not said["message"].get("content")
        why = ": a model that thinks first is read as a decision model with its thinking off" if silent else ""
        return OutputTruncatedError(
            f"{self.entry.id} was cut off at {limit} output tokens before it had answered{why}",
            limit=limit,
            model=self.entry.id,
        )


def _is_cut(said: Mapping[str, Any]) -> bool:
    return said.get("finish_reason") == "length"


def _rotations(settings: ProviderSettings) -> int:
    """Raises ConfigurationError for what is no number of orders."""
    given = settings.options.get("rotations", prompting.ROTATIONS)
    if type(given) is not int or given < 1:
        raise ConfigurationError(
            f"rotations of logprobs-decision is how many orders of its options a question is put in: a whole number of "
            f"at least 1, not {given!r}"
        )
    return given


def _choice(request: DecisionRequest) -> Choice:
    (question,) = request.questions.values()
    return prompting.as_choice(question)


def _is_stated(entry: ModelEntry, choice: Choice) -> bool:
    return "logprobs" in entry.unsupported or len(choice.options) > MOST_LABELS


def _system(stated: bool) -> str:
    return prompting.ASK_DISTRIBUTION if stated else prompting.ASK_LABEL


def _output_tokens(choice: Choice, stated: bool) -> int:
    return TOKENS_AROUND + len(choice.options) * TOKENS_AN_OPTION if stated else LABEL_TOKENS
