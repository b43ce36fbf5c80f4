"""The file as a whole: read, checked against itself, every mistake with file, line and key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml

from interlock.errors import CatalogError

from .document import Problems, compose, line_of, pairs
from .entry import Limits, ModelEntry, ProviderSettings
from .reader import ONE_OR_MORE, WRONG, Reader, nearest
from .rules import check
from .words import Grade

Names = Annotated[tuple[str, ...], ONE_OR_MORE]
PinKey = Grade | str

SECTIONS = ("providers", "defaults", "pools", "models", "pins", "embedding_width")
DEFAULT_EMBEDDING_WIDTH = 1024
#: What a provider's defaults may not set: these are each entry's own.
OWN_FIELDS = ("id", "identity", "wire_model_id", "provider")


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What a catalog file says, as typed values. `version` is a short hash of its text."""

    file: str
    version: str
    entries: dict[str, ModelEntry]
    providers: dict[str, ProviderSettings]
    defaults: dict[str, dict[str, Any]]
    pools: dict[str, Limits]
    pins: dict[PinKey, tuple[str, ...]]
    embedding_width: int = DEFAULT_EMBEDDING_WIDTH


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CatalogError("there is no such file", file=str(path)) from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CatalogError(f"cannot be read: {reason}", file=str(path)) from None


def load_text(text: str | bytes, file: str) -> Loaded:
    """Raises `CatalogError`, and nothing else, for whatever is wrong."""
    if isinstance(text, bytes):
        text = _decoded(text, file)
    version = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    problems = Problems(file)
    reader = Reader(problems)
    sections = _sections(compose(text, file), reader)
    parts = _parts(sections, reader)
    problems.raise_any()
    loaded = Loaded(file=file, version=version, **parts)
    check(loaded, reader)
    problems.raise_any()
    return loaded


def _decoded(text: bytes, file: str) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise CatalogError("is not UTF-8 text", file=file, line=line) from None


def _sections(top: yaml.MappingNode, reader: Reader) -> dict[str, yaml.Node]:
    found: dict[str, yaml.Node] = {}
    for key, key_node, value in pairs(top, (), reader.problems):
        reader.lines[(key,)] = line_of(key_node)
        if key in SECTIONS:
            found[key] = value
        else:
            reader.add(f"unknown section{nearest(key, SECTIONS)}: a catalog has {', '.join(SECTIONS)}", (key,))
    if "models" not in found:
        reader.problems.add("has no `models:`", line_of(top))
    return found


def _parts(sections: Mapping[str, yaml.Node], reader: Reader) -> dict[str, Any]:
    def read(name: str, wanted: Any, otherwise: Any) -> Any:
        if name not in sections or _is_null(sections[name]):
            return otherwise
        value = reader.read(sections[name], wanted, (name,))
        return otherwise if value is WRONG else value

    defaults = _defaults(sections.get("defaults"), reader)
    return {
        "providers": {
            key: settings or ProviderSettings()  # `simulated:` with nothing behind it is the defaults
            for key, settings in read("providers", dict[str, ProviderSettings | None], {}).items()
        },
        "defaults": defaults,
        "pools": read("pools", dict[str, Limits], {}),
        "entries": _entries(sections.get("models"), defaults, reader),
        "pins": _pins(read("pins", dict[str, Names], {}), reader),
        "embedding_width": read("embedding_width", int, DEFAULT_EMBEDDING_WIDTH),
    }


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _defaults(node: yaml.Node | None, reader: Reader) -> dict[str, dict[str, Any]]:
    if node is None or _is_null(node):
        return {}
    if not isinstance(node, yaml.MappingNode):
        reader.add("must be a mapping of provider keys", ("defaults",))
        return {}
    defaults: dict[str, dict[str, Any]] = {}
    for key, key_node, value in pairs(node, ("defaults",), reader.problems):
        path = ("defaults", key)
        reader.lines[path] = line_of(key_node)
        fields = reader.fields(value, ModelEntry, path)
        if fields is WRONG:
            continue
        for own in OWN_FIELDS:
            if own in fields:
                reader.add("belongs to each entry, not to the defaults", (*path, own))
        defaults[key] = fields
    return defaults


def _entries(
    node: yaml.Node | None, defaults: Mapping[str, Mapping[str, Any]], reader: Reader
) -> dict[str, ModelEntry]:
    entries: dict[str, ModelEntry] = {}
    if node is None:
        return entries
    if not isinstance(node, yaml.SequenceNode):
        reader.add("must be a list of entries, each with an id", ("models",))
        return entries
    first_line: dict[str, int | None] = {}
    for index, item in enumerate(node.value):
        path = ("models", index)
        reader.lines[path] = line_of(item)
        fields = reader.fields(item, ModelEntry, path)
        if fields is WRONG:
            continue
        if fields.get("id") in first_line:
            reader.add(f"{fields['id']} is written twice: first on line {first_line[fields['id']]}", (*path, "id"))
            continue
        entry = reader.validated(ModelEntry, {**defaults.get(str(fields.get("provider")), {}), **fields}, path)
        if entry is not WRONG:
            entries[entry.id] = entry
            first_line[entry.id] = reader.line((*path, "id"))
            reader.lines[("models", entry.id)] = line_of(item)
    return entries


def _pins(read: Mapping[str, tuple[str, ...]], reader: Reader) -> dict[PinKey, tuple[str, ...]]:
    pins: dict[PinKey, tuple[str, ...]] = {}
    for key, ids in read.items():
        if key in Grade.__members__:
            pins[Grade[key]] = ids
        elif key in ("embeddings", "decision"):
            pins[key] = ids
        else:
            known = (*Grade.__members__, "embeddings", "decision")
            reader.add(f"is no grade and no kind{nearest(key, known)}: pins are {', '.join(known)}", ("pins", key))
    return pins
