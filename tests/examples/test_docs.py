"""The pages under docs/ hold what the code holds: fields, errors, keys; their Python runs and is well typed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.catalog.entry import Accounting, Limits, ModelEntry, Prices, PriceTier, ProviderSettings
from interlock.clients.registry import provider_keys
from interlock.clients.simulator import Step
from interlock.errors import UpstreamError

ROOT = Path(__file__).parent.parent.parent


def blocks_of(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


PAGE_NAMES = ("jobs", "catalog", "testing", "fallback", "decisions")
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in PAGE_NAMES}
RUN = ("jobs", "testing", "decisions")
BLOCKS = [(name, number) for name in RUN for number in range(len(blocks_of(PAGES[name], "python")))]


def section(page: str, title: str) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| `?([^`|]+?)`? *\|", text, re.MULTILINE)


def test_every_page_that_is_named_is_there() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]
    named = {
        (page.name, link)
        for page in pages
        for link in re.findall(r"\b(?:docs/)?([a-z]+\.md)\b", page.read_text(encoding="utf-8"))
    }
    assert {(page, link) for page, link in named if not (ROOT / "docs" / link).is_file()} == set()


@pytest.mark.parametrize(
    ("title", "model"),
    [
        ("A model", ModelEntry),
        ("Limits", Limits),
        ("Accounting", Accounting),
        ("Prices", Prices),
        ("A provider", ProviderSettings),
    ],
)
def test_the_catalog_page_names_every_field_and_no_other(title: str, model: Any) -> None:
    named = first_cells(section(PAGES["catalog"], title))
    assert named[0] == "field"
    assert [name for name in named[1:] if not name.startswith("-")] == list(model.model_fields)
    assert set(re.findall(r"\w+", section(PAGES["catalog"], "Prices"))) >= set(PriceTier.model_fields)


def test_the_catalog_page_states_the_defaults() -> None:
    stated = {
        "burst_s": Limits().burst_s,
        "timeout_s": ProviderSettings().timeout_s,
        "idle_timeout_s": ProviderSettings().idle_timeout_s,
        "max_connections": ProviderSettings().max_connections,
        "per": Prices(input=0).per,
    }
    for name, value in stated.items():
        assert re.search(rf"^\| `{name}` .*\| {value:g}".replace("e+06", "000000") + r" *\|$", PAGES["catalog"], re.M)


def test_the_catalog_page_names_every_provider_key() -> None:
    assert [key for key in provider_keys() if f"`{key}`" not in PAGES["catalog"]] == []


def test_the_table_of_errors_is_the_codes() -> None:
    rows = re.findall(r"^\| (\w+Error) +\| `(\w+)` +\| (yes|no|once|the model)", PAGES["jobs"], re.MULTILINE)
    assert len(rows) >= 14
    for name, code, again in rows:
        error = getattr(interlock, name)
        assert error.code == code
        assert (again == "yes") == (issubclass(error, UpstreamError) and error.retryable), name


def test_every_retried_error_is_in_the_table() -> None:
    retried = [name for name in interlock.__all__ if getattr(getattr(interlock, name), "retryable", False) is True]
    assert [name for name in retried if not re.search(rf"^\| {name} ", PAGES["jobs"], re.MULTILINE)] == []


def test_the_spellings_are_there() -> None:
    holders = (interlock.JobRequirements, interlock.JobResources, interlock.LLMClient, interlock.EmbeddingsClient)
    named = re.search(r"These spellings[^:]*: ([^.]*)\.", PAGES["jobs"])
    assert named is not None
    for name in re.findall(r"`(\w+)`", named[1]):
        assert any(hasattr(holder, name) for holder in holders), name


def test_the_steps_are_there() -> None:
    named = re.findall(r"^\| `Step\.(\w+)\(", PAGES["testing"], re.MULTILINE)
    assert named
    assert [name for name in named if not hasattr(Step, name)] == []


@pytest.mark.parametrize(("page", "number"), BLOCKS)
def test_the_python_runs_as_shown(checkout: Path, run: Any, page: str, number: int) -> None:
    done = run([sys.executable, "-c", blocks_of(PAGES[page], "python")[number]], checkout)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_every_block_and_example_is_well_typed(tmp_path: Path) -> None:
    """As a user's own strict mypy sees it."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    sources = [block for page in (readme, *PAGES.values()) for block in blocks_of(page, "python")]
    for number, source in enumerate(sources):
        (tmp_path / f"block_{number}.py").write_text(source, encoding="utf-8")
    files = [*sorted(map(str, tmp_path.glob("*.py"))), *sorted(map(str, (ROOT / "examples").rglob("*.py")))]
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *files]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_file_linked_to_is_there(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", PAGES[page])
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
