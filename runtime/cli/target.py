"""`pipelines.py:triage` or `package.module:triage`: from the words on the command line to what they name."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from interlock.errors import ConfigurationError

from ..pipeline_job import Pipeline


def load_pipeline(target: str) -> Pipeline[Any, Any]:
    """Raises ConfigurationError saying which part of `target` cannot be used, and why."""
    place, module, name = _module_of(target, "pipeline", "pipelines.py:triage or package.module:triage")
    found = getattr(module, name, None)
    if isinstance(found, Pipeline):
        return found
    known = sorted(key for key, value in vars(module).items() if isinstance(value, Pipeline))
    if found is None:
        raise ConfigurationError(f"{place} has no pipeline {name!r}: {_instead(name, known)}")
    raise ConfigurationError(f"{name} of {place} is no pipeline but a {type(found).__name__}: put @pipeline on it")


def load_function(target: str) -> Callable[..., Any]:
    """A function of the deployment's own. Raises ConfigurationError like `load_pipeline`."""
    place, module, name = _module_of(target, "function", "settings.py:configure or package.module:configure")
    found = getattr(module, name, None)
    if inspect.isfunction(found):
        return found
    known = sorted(key for key, value in vars(module).items() if inspect.isfunction(value))
    if found is None:
        raise ConfigurationError(f"{place} has no function {name!r}: {_instead(name, known)}")
    raise ConfigurationError(f"{name} of {place} is no function but a {type(found).__name__}")


def load_module(target: str) -> ModuleType:
    """`pipelines.py` or `package.module`. Raises ConfigurationError like `load_pipeline`."""
    return _from_file(Path(target)) if target.endswith(".py") else _from_name(target)


def _module_of(target: str, what: str, example: str) -> tuple[str, ModuleType, str]:
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise ConfigurationError(f"{target!r} names no {what}: write {example}")
    return place, load_module(place), name


def _instead(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"it has {', '.join(known) or 'none'}"


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigurationError(f"{path}: there is no such file")
    loaded = sys.modules.get(path.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path.resolve()):
        return loaded  # a pipeline and a function of one file are two names of one module
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as `python pipelines.py` does, so that it finds what stands beside it
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"_interlock_{abs(hash(path))}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} cannot be imported: it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pydantic look their module up by its name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        _refuse(str(path), error)
    return module


def _from_name(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            file = f"{name.replace('.', '/')}.py"
            if ":" in name:
                raise ConfigurationError(f"{name!r} names no module: write {name.partition(':')[0]} alone") from None
            raise ConfigurationError(
                f"there is no module {name!r}, here or among what is installed: for a file write {file}"
            ) from None
        _refuse(name, error)
    except (Exception, SystemExit) as error:
        _refuse(name, error)


def _refuse(place: str, error: BaseException) -> NoReturn:
    """One sentence with the line of the user's code that failed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    line = getattr(error, "lineno", None) or (frames[-1].lineno if len(frames) > 1 else None)
    where = f" (line {line} of {Path(frames[-1].filename).name})" if line and not isinstance(error, SyntaxError) else ""
    raise ConfigurationError(f"{place} cannot be imported: {type(error).__name__}: {error}{where}") from None
