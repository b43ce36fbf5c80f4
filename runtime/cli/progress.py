"""Results as they come, and their order at the end.

While a run goes on, each finished line is appended to a file beside the output (`Y.jsonl.part`), in the order of
finishing, so a process that is killed loses nothing that was done. When the run ends or is stopped, the output is
written from it in the input's order and takes its place in one step. `--resume` reads back what is there.

Until the first good result nothing on the disk is touched, whatever was asked: a run that is refused, or that comes to
nothing because its set-up is wrong, leaves every earlier result as it was.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from interlock.errors import ConfigurationError

from .lines import Id

#: Failures kept in memory until the first good result; then they are written all the same.
MOST_PENDING = 1_000


class ResultFile:
    """The results of one output file by line id. A later result of the same line replaces an earlier one.

    `done` has, by id, what its input looked like (`Line.digest`), or None where that was not kept.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.part = output.with_name(f"{output.name}.part") if output.name else output
        self.done: dict[Id, str | None] = {}
        self.failed: set[Id] = set()
        self._places: dict[Id, tuple[int, int]] = {}
        self._end = 0
        #: What earlier results are read from; None where there are none.
        self.source: Path | None = None
        self._pending: list[dict[str, Any]] = []
        self._file: BinaryIO | None = None

    def open(self, *, resume: bool, overwrite: bool) -> None:
        """Refuses to write over results that are there, unless told what to do with them. Writes nothing."""
        if resume and overwrite:
            raise ConfigurationError("--resume keeps what is there and --overwrite does not: give one of them")
        self._check_place()
        self._check_alone()
        there = next((path for path in (self.part, self.output) if path.exists() and path.stat().st_size), None)
        if there is None or overwrite:
            return
        if not resume:
            raise ConfigurationError(f"{there} is there already: go on with --resume, or replace it with --overwrite")
        self._read_back(there)
        self.source = there

    def _check_place(self) -> None:
        for path in (self.output, self.part):
            if path.is_dir():
                raise ConfigurationError(f"{path} cannot be written: it is a folder, and a file is wanted")
            if path.exists() and not path.is_file():
                raise ConfigurationError(f"{path} cannot be written: it is no ordinary file")
        try:
            with tempfile.TemporaryFile(dir=self.output.parent):
                pass
            for path in (self.output, self.part):
                if path.exists() and not os.access(path, os.W_OK):
                    raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise _unwritable(self.output, error) from None

    def _check_alone(self) -> None:
        with suppress(FileNotFoundError, PermissionError), self.part.open("rb") as file:
            _lock(file, self.output)

    def _read_back(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                for number, raw in enumerate(file, start=1):
                    if path == self.part and not raw.endswith(b"\n"):
                        break  # cut off by a crash: written anew
                    self._note(_result(path, number, raw), len(raw) + (not raw.endswith(b"\n")))
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None

    def _note(self, result: dict[str, Any], length: int) -> None:
        name: Id = result["id"]
        self._places[name] = (self._end, length)
        self._end += length
        if "error" in result:
            self.failed.add(name)
            self.done.pop(name, None)
        else:
            self.done[name] = result.get("input")
            self.failed.discard(name)

    def add(self, result: dict[str, Any]) -> None:
        """Keep one result; a good one, and all before it, are in the file when this returns. ConfigurationError where
        that cannot be written."""
        self._pending.append(result)
        if self._file is not None or "error" not in result or len(self._pending) >= MOST_PENDING:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        try:
            self._file = self._file or self._begin()
            for result in self._pending:
                raw = _one_line(result)
                self._file.write(raw)
                self._note(result, len(raw))
            self._file.flush()
        except OSError as error:
            raise _unwritable(self.output, error) from None
        self._pending.clear()

    def _begin(self) -> BinaryIO:
        """The part file holds everything from here on, so that one file is the truth while a run goes on."""
        if self.source == self.part:
            file = self.part.open("r+b")
            _lock(file, self.output)
            file.truncate(self._end)
            file.seek(self._end)
            return file
        self._check_alone()
        fresh = self.part.with_name(f"{self.part.name}.new")
        file = fresh.open("w+b")
        try:
            _lock(file, self.output)
            if self.source is not None:
                earlier = self.source.read_bytes()
                file.write(earlier if earlier.endswith(b"\n") else earlier + b"\n")
                file.flush()
            os.replace(fresh, self.part)
        except OSError:
            file.close()
            fresh.unlink(missing_ok=True)
            raise
        return file  # its lock goes along, and ends with the process

    def finish(self, order: Iterable[Id]) -> None:
        """Write the output in that order, in one step; without any result there is no output.

        Results of lines that are no longer in the input follow at the end: they were paid for.
        """
        self._flush()
        if self._file is None and self.source == self.part:  # nothing new, but a killed run left its results here
            self._file = self.part.open("rb")
            _lock(self._file, self.output)
        if self._file is None:
            return
        target = self.output.resolve() if self.output.is_symlink() else self.output
        fresh = target.with_name(f"{target.name}.new")
        try:
            self._file.flush()
            with fresh.open("wb") as file:
                file.writelines(self._in(order))
            os.replace(fresh, target)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise ConfigurationError(
                f"{self.output} cannot be written: {error.strerror or error}. Nothing is lost: what was done is in "
                f"{self.part}, and --resume goes on from there"
            ) from None
        self.close()
        self.part.unlink(missing_ok=True)

    def _in(self, order: Iterable[Id]) -> Iterator[bytes]:
        assert self._file is not None
        for name in dict.fromkeys((*order, *self._places)):
            if (found := self._places.get(name)) is not None:
                self._file.seek(found[0])
                yield self._file.read(found[1])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self.close()


#: Line ends to many readers, though not to JSON.
_LINE_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"})


def _one_line(result: dict[str, Any]) -> bytes:
    text = json.dumps(result, ensure_ascii=False).translate(_LINE_ENDS)
    return text.encode("utf-8", "backslashreplace") + b"\n"  # a lone surrogate becomes its JSON escape


def _result(path: Path, number: int, raw: bytes) -> dict[str, Any]:
    try:
        result = json.loads(raw)
        if isinstance(result, dict) and isinstance(result["id"], str | int):
            return result
    except (ValueError, KeyError, RecursionError):
        pass
    raise ConfigurationError(
        f"{path}: line {number} is no result of `interlock run`: mend or remove that line, choose another output, or "
        "--overwrite"
    )


def _lock(file: BinaryIO, output: Path) -> None:
    """Two processes that wrote into one file would write over each other. Where the system has no such lock there is
    none."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigurationError(
            f"{output} is being written by another process: wait until it has ended, or choose another output"
        ) from None
    except (ImportError, OSError):
        return


def _unwritable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{path} cannot be written: {error.strerror or error}")
