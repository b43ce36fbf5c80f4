"""CPU of one call and of a stream of 500 pieces: everybody on the same provider, rounds taken in turn."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from .contenders import CONTENDERS, Contender
from .provider import running
from .workload import PIECES

WIRES = ("anthropic", "openai")
FOLDER = Path(__file__).parents[1]
#: What ours may add, in milliseconds a call and microseconds a piece.
WANTED_CALL_MS, WANTED_PIECE_US = 1.0, 20.0


class Child:
    """A contender's process, which takes rounds."""

    def __init__(self, contender: Contender, python: Path, wire: str, url: str) -> None:
        self.contender, self.figures = contender, dict[str, list[float]]()
        self._process = subprocess.Popen(
            [str(python), "-m", "clients.child", contender.way, wire, url], cwd=FOLDER, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_clean(),
        )  # fmt: skip
        self._answer()

    def round(self, kind: str, calls: int, *, counts: bool = True) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{kind} {calls}\n")
        self._process.stdin.flush()
        taken = self._answer()
        if counts:
            self.figures.setdefault(kind, []).append(float(taken))

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.contender.title} failed")
        return str(json.loads(line))


def _clean() -> dict[str, str]:
    """Nobody may trace, or take an address from the environment."""
    gone = ("ANTHROPIC_", "OPENAI_", "LANGSMITH_", "LANGCHAIN_", "LITELLM_", "OTEL_", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(gone)}


def measure(pythons: dict[str, Path], rounds: int, calls: int, streams: int) -> dict[str, dict[str, dict[str, float]]]:
    """wire -> contender -> "whole", "streamed": milliseconds of CPU a call, the median of the rounds."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    with running() as base_url:
        for wire in WIRES:
            with ExitStack() as stack:
                url = base_url if wire == "anthropic" else f"{base_url}/v1"
                children = [Child(one, pythons[one.name], wire, url) for one in CONTENDERS]
                for child in children:
                    stack.callback(child.close)
                    child.round("whole", max(10, calls // 2), counts=False)
                    child.round("streamed", max(2, streams // 2), counts=False)
                for _ in range(rounds):
                    for child in children:
                        child.round("whole", calls)
                        child.round("streamed", streams)
            found[wire] = {
                child.contender.name: {kind: median(figures) for kind, figures in child.figures.items()}
                for child in children
            }
    return found


def rows(found: dict[str, dict[str, dict[str, float]]]) -> Sequence[tuple[str, ...]]:
    """A table: milliseconds a call, and what is added to the bare SDK's."""
    lines = [("wire", "", "ms a call", "added", f"ms a stream of {PIECES}", "added, µs a piece")]
    for wire, contenders in found.items():
        bare = contenders["sdk"]
        for contender in CONTENDERS:
            own = contenders[contender.name]
            whole, piece = own["whole"] - bare["whole"], (own["streamed"] - bare["streamed"]) / PIECES * 1_000
            added = ("", "") if contender.name == "sdk" else (f"{whole:+.2f}", f"{piece:+.1f}")
            lines.append(
                (wire, contender.title, f"{own['whole']:.2f}", added[0], f"{own['streamed']:.1f}", added[1])
            )  # fmt: skip
    return lines


def verdict(found: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """What of what is wanted does not hold."""
    wrong = []
    for wire, contenders in found.items():
        ours, bare = contenders["interlock"], contenders["sdk"]
        whole, piece = ours["whole"] - bare["whole"], (ours["streamed"] - bare["streamed"]) / PIECES * 1_000
        if whole > WANTED_CALL_MS:
            wrong.append(f"{wire}: {whole:.2f} ms a call, wanted {WANTED_CALL_MS:g}")
        if piece > WANTED_PIECE_US:
            wrong.append(f"{wire}: {piece:.1f} µs a piece, wanted {WANTED_PIECE_US:g}")
        for name, figures in contenders.items():
            if name in ("sdk", "interlock"):
                continue
            wrong += [
                f"{wire}: {kind} costs {ours[kind]:.2f} ms, {name}'s {figures[kind]:.2f}"
                for kind in ours
                if ours[kind] >= figures[kind]
            ]
    return wrong
