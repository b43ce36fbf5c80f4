"""Labelled pairs from the standard library's documentation: a docstring's first sentence asks for what follows it."""

from __future__ import annotations

import ast
import inspect
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from interlock.runtime.demo.corpus import MODULES

_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n\s*\n")
SHORTEST_QUESTION, SHORTEST_ANSWER = 15, 40  # characters


class Pair(NamedTuple):
    """`question` is None for a text that says too little to be asked for: it is there to be told from the others."""

    name: str
    question: str | None
    answer: str


def pairs() -> list[Pair]:
    """Of every documented class, function and method of the demo's modules; each answer once."""
    folder, found = Path(sysconfig.get_path("stdlib")), dict[str, Pair]()
    for module in MODULES:
        path = folder.joinpath(*module.split("."))
        for file in (path.with_suffix(".py"), *sorted(path.glob("*.py"))):
            for pair in _of(file, file.relative_to(folder).with_suffix("").as_posix().replace("/", ".")):
                found.setdefault(pair.answer, pair)
    return list(found.values())


def _of(file: Path, module: str) -> Iterator[Pair]:
    if not file.is_file():
        return
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        name, text = (
            f"{module}.{node.name}:{node.lineno}",
            inspect.cleandoc(ast.get_docstring(node, False) or "").strip(),
        )
        question = _SENTENCE.split(text, maxsplit=1)[0]
        answer = text[len(question) :].strip()
        if len(question) >= SHORTEST_QUESTION and len(answer) >= SHORTEST_ANSWER:
            yield Pair(name, question, answer)
        elif text:
            yield Pair(name, None, text)
