"""What `interlock run` says at its end: how it went, which errors there were, and how to go on."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from interlock.errors import ConfigurationError, InterlockError, SpendCapExceededError

from ..opened import DEPLOYMENT
from .failing import sentence

MOST_KINDS = 5  # codes named at the end
LONGEST_MESSAGE = 300  # characters

#: What the runtime calls the cap of a whole Runtime, and what the user of this command wrote.
_CAP, _OPTION = f"the cost cap {DEPLOYMENT!r}", "--max-cost"


def told(error: BaseException) -> str:
    """The error's sentence with the words of this command."""
    return sentence(error).replace(_CAP, _OPTION)


def in_the_commands_words(error: InterlockError) -> InterlockError:
    return error if _CAP not in sentence(error) else ConfigurationError(told(error))


@dataclass
class _Kind:
    first_line: int
    message: str
    count: int = 0


class Failures:
    """Failed lines by the code of their error, with the first of each."""

    def __init__(self) -> None:
        self.count = 0
        self._kinds: dict[str, _Kind] = {}

    def add(self, line: int, code: str, message: str) -> None:
        self.count += 1
        kind = self._kinds.setdefault(code, _Kind(line, message))
        kind.count += 1
        if line < kind.first_line:
            kind.first_line, kind.message = line, message

    def told(self) -> list[str]:
        """One line a code, the most frequent first."""
        kinds = sorted(self._kinds.items(), key=lambda item: (-item[1].count, item[1].first_line))
        lines = [f"  {code}: {_counted(kind)}: {_short(kind.message)}" for code, kind in kinds[:MOST_KINDS]]
        return lines + ([f"  and {len(kinds) - MOST_KINDS} other kinds of error"] if len(kinds) > MOST_KINDS else [])


def summary(
    *,
    succeeded: int,
    total: int,
    already: int,
    failures: Failures,
    bad: int,
    cost: str,
    output: Path,
    written: bool,
    interrupted: signal.Signals | None,
    capped: SpendCapExceededError | None,
    left: int,
    again: str,
) -> str:
    parts = [f"{succeeded} of {total} lines done"]
    parts += [f"{already} were done before"] if already else []
    parts += [f"{failures.count} failed"] if failures.count else []
    parts += [f"{bad} bad lines left out"] if bad else []
    parts += [cost] if cost else []
    lines = [f"{'; '.join(parts)}. {f'Results: {output}' if written else 'Nothing was written.'}", *failures.told()]
    if interrupted is not None:
        lines.append(f"Stopped by {'Ctrl-C' if interrupted is signal.SIGINT else interrupted.name}.")
    if capped is not None:
        lines.append(f"Stopped at the cost cap: {told(capped)}")
    if left > 0:
        lines.append(f"{left} {'line is' if left == 1 else 'lines are'} left. Go on with: {again}")
    return "\n".join(lines)


def _counted(kind: _Kind) -> str:
    return f"line {kind.first_line}" if kind.count == 1 else f"{kind.count} lines, the first line {kind.first_line}"


def _short(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 3]}..."
