"""The folders at the root are the package: every one is linked, packaged and checked, and none is imported barely."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDERS = {"runtime", "admission", "catalog", "clients", "embeddings", "decisions", "credentials"}
BARE_IMPORT = re.compile(rf"^\s*(from|import)\s+({'|'.join(sorted(FOLDERS))})\b", re.MULTILINE)


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def test_every_folder_is_linked_into_the_package() -> None:
    links = {path.name for path in (ROOT / "src" / "interlock").iterdir() if path.is_symlink()}
    assert links == FOLDERS | {"catalog.yaml"}
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"benchmarks"}
    assert packages == FOLDERS


def test_the_links_are_relative() -> None:
    links = [path for path in (ROOT / "src" / "interlock").iterdir() if path.is_symlink()]
    assert {str(path.readlink()) for path in links} == {f"../../{path.name}" for path in links}


def test_every_folder_is_packaged_and_type_checked() -> None:
    tool = pyproject()["tool"]
    assert set(tool["hatch"]["build"]["only-include"]) >= FOLDERS
    assert tool["hatch"]["build"]["targets"]["wheel"]["sources"] == {
        "src/interlock": "interlock",
        **{folder: f"interlock/{folder}" for folder in FOLDERS},
    }
    assert set(tool["pyright"]["include"]) >= {f"src/interlock/{folder}" for folder in FOLDERS}


def test_every_module_beside_the_links_is_packaged() -> None:
    modules = {f"src/interlock/{path.name}" for path in (ROOT / "src" / "interlock").glob("*.py")}
    assert set(pyproject()["tool"]["hatch"]["build"]["only-include"]) >= modules


def test_no_folder_is_imported_by_its_bare_name() -> None:
    files = sources(*sorted(FOLDERS), "tests", "examples", "benchmarks")
    assert [str(path) for path in files if BARE_IMPORT.search(path.read_text(encoding="utf-8"))] == []


def test_every_folder_says_what_lives_there() -> None:
    opening = {path: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for path in sources(*FOLDERS)}
    silent = [path for path, text in opening.items() if path.name == "__init__.py" and len(text or "") < 20]
    assert [str(path.relative_to(ROOT)) for path in silent] == []


def test_the_pins_name_no_host() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+", line)] == []


def test_every_named_dependency_is_pinned() -> None:
    project = pyproject()
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for group in (*project["project"]["optional-dependencies"].values(), *project["dependency-groups"].values()):
        wanted += [text for text in group if isinstance(text, str)]
    names = {re.split(r"[\[><=~! ]", text, maxsplit=1)[0].lower().replace("_", "-") for text in wanted} - {"interlock"}
    files = [
        ROOT / "constraints.txt",
        *(ROOT / "tests").rglob("constraints.txt"),
    ]  # these have environments of their own
    lines = [line for file in files for line in file.read_text(encoding="utf-8").lower().replace("_", "-").splitlines()]
    assert names - {line.split("==")[0] for line in lines} == set()
