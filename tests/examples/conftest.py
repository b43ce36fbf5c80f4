"""A folder that looks like the root of a checkout, and commands run in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the examples, as the root of a checkout has them."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.fixture
def run() -> Callable[[list[str], Path], subprocess.CompletedProcess[str]]:
    def run_in(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error::ResourceWarning"}
        return subprocess.run(
            words, capture_output=True, text=True, cwd=folder, env=environment, timeout=300, check=False
        )

    return run_in
