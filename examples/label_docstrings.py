"""Labelled examples from Python's own library, for `interlock decisions eval`.

    python examples/label_docstrings.py > labelled.jsonl

Each line is the documentation of a function or class, and which part of the library it comes from: the label is where
the text stands, so nobody had to write it. The questions stand in the first line.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator

AREAS = {
    "email": ("mail messages, headers and addresses", ("email.message", "email.utils", "email.header", "mailbox")),
    "network": ("web addresses, HTTP and servers", ("urllib.request", "http.client", "http.cookiejar", "socketserver")),
    "time": ("dates, times, calendars and time zones", ("datetime", "calendar", "zoneinfo")),
    "files": ("files, folders, paths and archives", ("shutil", "tarfile", "zipfile", "tempfile", "glob")),
    "testing": ("tests, assertions and mocks", ("unittest.case", "unittest.mock", "doctest")),
    "numbers": ("numbers, statistics and arithmetic", ("statistics", "fractions", "decimal", "random")),
}  # fmt: skip
QUESTIONS = {
    "area": {
        "type": "choice",
        "instructions": "Which part of a programming library is this about?",
        "criteria": {name: meaning for name, (meaning, _) in AREAS.items()},
    },
    "is_time": {
        "type": "noul",
        "instructions": "Is this about dates or times?",
        "criteria": {"true": "dates, times, calendars, time zones", "false": "something else"},
    },
}
SHORTEST, LONGEST = 40, 600


def documented(module_name: str) -> Iterator[str]:
    """What a module says of the functions and classes it defines, and of their own methods."""
    module = importlib.import_module(module_name)
    for _, thing in inspect.getmembers(module):
        if getattr(thing, "__module__", None) != module_name or not callable(thing):
            continue
        own = vars(thing).values() if inspect.isclass(thing) else ()
        for each in (thing, *own):
            text = inspect.getdoc(each) if callable(each) else None
            if text and SHORTEST <= len(text) <= LONGEST and not text.startswith("Initialize self."):
                yield f"{getattr(each, '__qualname__', '')}: {' '.join(text.split())}"


def main() -> None:
    texts: dict[str, str] = {}
    for area, (_, modules) in AREAS.items():
        for module in modules:
            for text in documented(module):
                texts.setdefault(text, area)
    first = True
    for number, text in enumerate(sorted(texts)):
        area = texts[text]
        line = {"id": f"doc-{number}", "state": text, "labels": {"area": area, "is_time": area == "time"}}
        print(json.dumps({**line, **({"questions": QUESTIONS} if first else {})}))
        first = False


if __name__ == "__main__":
    main()
