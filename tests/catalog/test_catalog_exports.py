"""What the folder exports: each name loads on first use, and every promised name is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import interlock.catalog
import interlock.credentials


def test_every_exported_name_loads() -> None:
    for name in interlock.catalog.__all__:
        assert getattr(interlock.catalog, name) is not None
        assert name in dir(interlock.catalog)
    assert set(interlock.catalog._HOMES) == set(interlock.catalog.__all__)
    for name in interlock.credentials.__all__:
        assert getattr(interlock.credentials, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        interlock.catalog.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_a_small_value_does_not_load_the_reader_or_pydantic() -> None:
    script = (
        "import sys; from interlock.catalog.usage import Usage; from interlock.catalog import Grade;"
        "print(sorted({'yaml', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
