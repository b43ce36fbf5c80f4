"""`import interlock` is light, every public name resolves, and the type checker's view is the run time's view."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import interlock

SOURCE = Path(__file__).parent.parent / "src" / "interlock" / "__init__.py"
NAMES = sorted(set(interlock.__all__) - {"__version__"})
HEAVY = {"anthropic", "openai", "sqlalchemy", "numpy", "httpx2", "starlette", "uvicorn", "wordllama", "sparrow_decider"}


def imports_for_type_checkers() -> dict[str, str]:
    block = next(node for node in ast.parse(SOURCE.read_text(encoding="utf-8")).body if isinstance(node, ast.If))
    lines = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in lines for alias in node.names}


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(interlock, name) is not None
    assert name in dir(interlock)


def test_both_tables_agree() -> None:
    assert imports_for_type_checkers() == {name: interlock._MODULE_OF[name] for name in NAMES}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Rntime'"):
        interlock.Rntime  # noqa: B018


def test_the_import_loads_nothing_heavy() -> None:
    code = "import interlock, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & HEAVY == set()
