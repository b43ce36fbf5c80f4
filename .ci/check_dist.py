"""What the wheel and the sdist hold: every tracked source file under its import name, and nothing else."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

FOLDERS = ("runtime", "admission", "catalog", "clients", "embeddings", "decisions", "credentials")


def tracked() -> set[str]:
    listing = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True)
    return {name for name in listing.stdout.split("\0") if name and not Path(name).is_symlink()}


def expected_in_wheel(files: set[str]) -> set[str]:
    package = {f"interlock/{name}" for name in files if name.split("/")[0] in FOLDERS}
    root = {name.removeprefix("src/") for name in files if name.startswith("src/interlock/")}
    return package | root | {"interlock/catalog.yaml"}


def differences(what: str, found: set[str], wanted: set[str]) -> list[str]:
    return [
        *(f"{what} lacks {name}" for name in sorted(wanted - found)),
        *(f"{what} has {name}, which nobody tracks" for name in sorted(found - wanted)),
    ]


def wheel_problems(path: Path, files: set[str]) -> list[str]:
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        about = {name.split(".dist-info/")[1]: name for name in wheel.namelist() if ".dist-info/" in name}
        points = wheel.read(about["entry_points.txt"]).decode()
        empty = [name for name in ("interlock/catalog.yaml",) if not wheel.read(name).strip()]
    problems = differences("the wheel", names, expected_in_wheel(files))
    problems += [f"the wheel's {name} is empty" for name in empty]
    problems += [f"the wheel has no {name}" for name in ("licenses/LICENSE", "METADATA") if name not in about]
    problems += [
        f"the wheel's entry points lack {line}"
        for line in (
            "[console_scripts]",
            "interlock = interlock.runtime.cli:main",
            "[interlock.providers]",
            "simulated = ",
        )
        if line not in points
    ]
    return problems


def sdist_problems(path: Path, files: set[str]) -> list[str]:
    with tarfile.open(path) as sdist:
        names = {member.name.split("/", 1)[1] for member in sdist.getmembers() if member.isfile()}
    kept = ("src/interlock/", "tests/", *(f"{folder}/" for folder in FOLDERS))
    wanted = {name for name in files if name.startswith(kept)}
    wanted |= {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "catalog.yaml", "constraints.txt"}
    return [f"the sdist lacks {name}" for name in sorted(wanted - names)]


def main() -> int:
    folder, files = Path(sys.argv[1]), tracked()
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    problems = wheel_problems(wheel, files) + sdist_problems(sdist, files)
    print("\n".join(problems) or f"{wheel.name} and {sdist.name} hold what they should")
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main())
