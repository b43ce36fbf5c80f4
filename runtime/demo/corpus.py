"""The demo's input: documentation strings of the standard library, read from its source files.

Nothing is imported to read them, so no module's side effects run, and `python -OO` reads the same text. The list of
modules is fixed and the order is the list's, so every machine with the same Python gets the same entries.
"""

from __future__ import annotations

import ast
import inspect
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from interlock.errors import ConfigurationError

#: Written in Python, documented, and part of every full installation.
_NAMES = (
    "argparse ast base64 bdb bisect bz2 calendar cmd code codecs collections colorsys compileall concurrent.futures "
    "configparser contextlib copy csv ctypes dataclasses datetime difflib dis doctest email enum filecmp fileinput "
    "fnmatch fractions ftplib functools getopt getpass gettext glob graphlib gzip hashlib heapq hmac html http.client "
    "http.cookies http.server imaplib importlib inspect io ipaddress json keyword linecache locale logging lzma "
    "mailbox mimetypes numbers operator optparse os pathlib pdb pickle pickletools pkgutil platform plistlib poplib "
    "posixpath pprint profile pstats pyclbr pydoc queue quopri random re reprlib rlcompleter runpy sched secrets "
    "selectors shelve shutil smtplib socket socketserver sqlite3 ssl stat statistics string stringprep subprocess "
    "symtable sysconfig tabnanny tarfile tempfile textwrap threading timeit tokenize trace traceback tracemalloc "
    "types typing unittest urllib.parse urllib.request urllib.robotparser uuid venv warnings wave weakref webbrowser "
    "wsgiref xml xmlrpc.client zipapp zipfile zipimport"
)
MODULES = tuple(_NAMES.split())

PER_MODULE = 4  # its own documentation and the first of its public classes and functions
SHORTEST = 60  # characters: shorter strings say nothing to summarise
LONGEST = 1_600  # characters: the first part of a long manual is what it is about


@dataclass(frozen=True, slots=True)
class Entry:
    """One documented thing: `name` is its dotted name, `module` the module it is from, `kind` what it is."""

    name: str
    module: str
    kind: str
    text: str


def read_corpus(limit: int | None = None, *, library: Path | None = None) -> tuple[Entry, ...]:
    """The entries in their fixed order: every module once before any module's parts, so a short corpus is varied too.

    Raises ConfigurationError where the library's source files are not installed.
    """
    folder = library or Path(sysconfig.get_path("stdlib"))
    corpus = tuple(islice(_in_rounds([entries_of(module, folder) for module in MODULES]), limit))
    if not corpus:
        raise ConfigurationError(
            f"No source files of the standard library in {folder}: run the demo with a Python that has them"
        )
    return corpus


def _in_rounds(modules: list[Iterator[Entry]]) -> Iterator[Entry]:
    for _ in range(PER_MODULE):
        for entries in modules:
            if (entry := next(entries, None)) is not None:
                yield entry


def entries_of(module: str, folder: Path) -> Iterator[Entry]:
    """What one module documents: itself, then its public classes and functions in the order they are written."""
    path = folder.joinpath(*module.split("."))
    file = next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)
    if file is None:
        return
    tree = ast.parse(file.read_text(encoding="utf-8"))
    if text := documentation(tree):
        yield Entry(module, module, "module", text)
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        if text := documentation(node):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            yield Entry(f"{module}.{node.name}", module, kind, text)


def documentation(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """Its documentation string, cut at a paragraph or a line where it is long; None where it says too little."""
    text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "").strip()
    if len(text) < SHORTEST:
        return None
    if len(text) <= LONGEST:
        return text
    head = text[:LONGEST]
    cut = max(head.rfind("\n\n"), head.rfind("\n", LONGEST // 2))
    return head[:cut].rstrip() if cut > SHORTEST else head
