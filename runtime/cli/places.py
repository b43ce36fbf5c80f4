"""Whether a command can write its files: that it reads none of them, and that what draws them is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

from interlock.errors import ConfigurationError


def check_places(read: Mapping[str, Path | None], written: Mapping[str, Path | None]) -> None:
    """By what each file is called. ConfigurationError where one would be written over, or cannot be written at all."""
    sources = [(name, path) for name, path in read.items() if path is not None]
    targets = [(name, path) for name, path in written.items() if path is not None]
    for _, path in targets:
        for name, source in sources:
            if _same(path, source):
                raise ConfigurationError(f"{path} is {name} itself: name another file")
        if path.is_dir():
            raise ConfigurationError(f"{path} cannot be written: it is a folder, and a file is wanted")
        if not path.parent.is_dir():
            raise ConfigurationError(f"{path} cannot be written: the folder {path.parent} does not exist")
    for (one, path), (other, again) in combinations(targets, 2):
        if _same(path, again):
            raise ConfigurationError(f"{path} is named by {one} and by {other}: name two files")


def check_drawing(*, plot: Path | None, html: Path | None) -> None:
    """ConfigurationError where what draws is not installed, or draws no such file: said before the work and not after
    it."""
    for option, path, library in (("--plot", plot, "matplotlib"), ("--html", html, "plotly")):
        if path is not None and find_spec(library) is None:
            raise ConfigurationError(f"{option} needs {library}: pip install 'interlock[plot]'")
    if plot is not None and plot.suffix:
        from matplotlib.backend_bases import FigureCanvasBase

        known = FigureCanvasBase.get_supported_filetypes()
        if plot.suffix[1:].lower() not in known:
            raise ConfigurationError(f"--plot {plot}: no picture is of that kind; there are {', '.join(sorted(known))}")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there yet
        return one.absolute() == other.absolute()
