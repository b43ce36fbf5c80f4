"""Results as they come, and their order at the end.

While a run goes on, each finished line is appended to a file beside the output (`Y.jsonl.part`), in the order of
finishing, so a process that is killed loses nothing that was done. When the run ends or is stopped, the output is
written from it in the input's order and takes its place in one step. `--resume` reads both files back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from interlock.errors import ConfigurationError

from .lines import Id


class ResultFile:
    """The results of one output file by line id. A later result of the same line replaces an earlier one."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.part = output.with_name(f"{output.name}.part")
        self.done: set[Id] = set()
        self.failed: set[Id] = set()
        self._places: dict[Id, tuple[int, int]] = {}
        self._end = 0
        self._file: BinaryIO | None = None

    def open(self, *, resume: bool, overwrite: bool) -> None:
        """Refuses to write over results that are there, unless told what to do with them."""
        there = next((path for path in (self.output, self.part) if path.exists() and path.stat().st_size), None)
        if there is not None and not (resume or overwrite):
            raise ConfigurationError(
                f"{there} is there already: go on with --resume, or write it anew with --overwrite"
            )
        try:
            if overwrite and not resume:
                self.part.unlink(missing_ok=True)
            if resume and self.output.exists() and not self.part.exists():
                self._copy_output()
            self._file = self.part.open("a+b")
        except OSError as error:
            raise ConfigurationError(f"{self.output} cannot be written: {error.strerror or error}") from None
        try:
            self._read_back()
        except ConfigurationError:
            self.close()
            raise

    def _copy_output(self) -> None:
        """The part file holds everything again, so that one file is the truth while a run goes on."""
        fresh = self.part.with_name(f"{self.part.name}.new")
        fresh.write_bytes(self.output.read_bytes())
        os.replace(fresh, self.part)

    def _read_back(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        for raw in self._file:
            if not raw.endswith(b"\n"):
                break  # cut off by a crash: written anew
            self._note(_result(self.part, raw), len(raw))
        self._file.truncate(self._end)

    def _note(self, result: dict[str, Any], length: int) -> None:
        name: Id = result["id"]
        self._places[name] = (self._end, length)
        self._end += length
        ours, other = (self.failed, self.done) if "error" in result else (self.done, self.failed)
        ours.add(name)
        other.discard(name)

    def add(self, result: dict[str, Any]) -> None:
        """Keep one result at once: it is in the file when this returns."""
        assert self._file is not None
        raw = _one_line(result)
        self._file.write(raw)
        self._file.flush()
        self._note(result, len(raw))

    def finish(self, order: Iterable[Id]) -> None:
        """Write the output in that order, in one step; without any result there is no output.

        Results of lines that are no longer in the input follow at the end: they were paid for.
        """
        assert self._file is not None
        if self._places:
            fresh = self.output.with_name(f"{self.output.name}.new")
            with fresh.open("wb") as file:
                for name in dict.fromkeys((*order, *self._places)):
                    if (found := self._places.get(name)) is not None:
                        self._file.seek(found[0])
                        file.write(self._file.read(found[1]))
            os.replace(fresh, self.output)
        self.close()
        self.part.unlink()

    def discard(self) -> None:
        """Leave things as they were: nothing came of this run."""
        self.close()
        self.part.unlink()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self.close()
        if not self._places and self.part.exists():
            self.part.unlink()


#: Line ends to many readers, though not to JSON.
_LINE_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"})


def _one_line(result: dict[str, Any]) -> bytes:
    text = json.dumps(result, ensure_ascii=False).translate(_LINE_ENDS)
    return text.encode("utf-8", "backslashreplace") + b"\n"  # a lone surrogate becomes its JSON escape


def _result(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        result = json.loads(raw)
        if isinstance(result, dict) and isinstance(result["id"], str | int):
            return result
    except (ValueError, KeyError):
        pass
    raise ConfigurationError(f"{path} does not hold results of `interlock run`: choose another output, or --overwrite")
