"""The demo's input is on every machine, and the same each time."""

import subprocess
import sys
from pathlib import Path

import pytest

from interlock.errors import ConfigurationError
from interlock.runtime.demo.corpus import LONGEST, MODULES, PER_MODULE, SHORTEST, Entry, entries_of, read_corpus


@pytest.fixture(scope="module")
def corpus() -> tuple[Entry, ...]:
    return read_corpus()


def test_a_few_hundred_entries_from_a_hundred_modules(corpus: tuple[Entry, ...]) -> None:
    assert 300 <= len(corpus) <= len(MODULES) * PER_MODULE
    assert len({entry.module for entry in corpus}) >= 100
    assert len({entry.name for entry in corpus}) == len(corpus)
    assert all(SHORTEST <= len(entry.text) <= LONGEST for entry in corpus)
    assert {entry.kind for entry in corpus} == {"module", "class", "function"}


def test_the_order_is_fixed_and_a_limit_takes_its_beginning(corpus: tuple[Entry, ...]) -> None:
    assert read_corpus(30) == corpus[:30]
    assert corpus[0].name == "argparse"


def test_reading_imports_none_of_what_is_read() -> None:
    code = (
        "import sys; from interlock.runtime.demo.corpus import read_corpus, MODULES; before = set(sys.modules)\n"
        "read_corpus(20); print(*(set(sys.modules) - before) & set(MODULES))"
    )
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_public_things_with_something_to_say(tmp_path: Path) -> None:
    long = "It says something. " * 4
    source = f'"""The module. {long}"""\n'
    source += f'def _private():\n    """{long}"""\n'
    source += 'def silent():\n    """Short."""\n'
    source += f'class Public:\n    """The class.\n\n    {long}\n    """\n'
    source += f'async def public():\n    """{long}"""\n'
    (tmp_path / "thing.py").write_text(source, encoding="utf-8")
    found = [(entry.name, entry.kind) for entry in entries_of("thing", tmp_path)]
    assert found == [("thing", "module"), ("thing.Public", "class"), ("thing.public", "function")]


def test_a_long_text_is_cut_where_it_pauses(tmp_path: Path) -> None:
    paragraph = " ".join(["word"] * 60)
    source = f'"""{paragraph}\n\n{paragraph}\n\n{paragraph}\n\n{paragraph}\n\n{paragraph}\n\n{paragraph}\n"""'
    (tmp_path / "thing.py").write_text(source, encoding="utf-8")
    (entry,) = entries_of("thing", tmp_path)
    assert len(entry.text) <= LONGEST
    assert entry.text.split("\n\n") == [paragraph] * 5


def test_a_python_without_sources(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No source files of the standard library"):
        read_corpus(library=tmp_path)
