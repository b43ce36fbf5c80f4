"""What a bare word of the file is, decided by what its field wants and never by YAML 1.1's own guesses.

YAML 1.1 reads `no` as false, `012` as ten, `1:30` as ninety and `1e6` as text. Here a text field keeps its characters,
a number field takes plain decimal numbers only, and everything that could be read in two ways is refused with the way
to write it.
"""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
TRUE = frozenset({"true", "True", "TRUE"})
FALSE = frozenset({"false", "False", "FALSE"})
#: Words that YAML 1.1 turns into booleans behind the writer's back.
YES_NO = frozenset(form for word in ("yes", "no", "on", "off") for form in (word, word.capitalize(), word.upper()))

LARGEST = 2**63 - 1

_DECIMAL = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)", re.ASCII)
_YAML_EXPONENT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\.[0-9]*[eE][-+][0-9]{1,4}", re.ASCII)
_EXPONENT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]{1,4}", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0+[0-9]+", re.ASCII)
_UNDERSCORES = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?", re.ASCII)
_SEXAGESIMAL = re.compile(r"[-+]?[0-9]+(?::[0-9]+)+(?:\.[0-9]*)?", re.ASCII)
_BASED = re.compile(r"[-+]?0[xob][0-9a-fA-F_]+", re.ASCII)
_SUFFIXED = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s?([kKmMgG])", re.ASCII)
_GROUPED = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.?(?:inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_SCALE = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_LOWEST_EXPONENT, _HIGHEST_EXPONENT = -30, 30


class ScalarError(ValueError):
    """A word that its field cannot take. The message says how to write what was meant."""


def shown(raw: str) -> str:
    """The word as an error may show it: short, and on one line."""
    text = raw if len(raw) <= 40 else raw[:37] + "..."
    return repr(text)


def read_text(raw: str, *, quoted: bool) -> str:
    if not quoted and raw in YES_NO | TRUE | FALSE:
        raise ScalarError(f"{raw} without quotes is a yes-or-no word to YAML: write '{raw}' if the text is meant")
    return raw


def read_flag(raw: str, *, quoted: bool) -> bool:
    if quoted or raw not in TRUE | FALSE:
        raise ScalarError(f"must be true or false, not {shown(raw)}")
    return raw in TRUE


def read_date(raw: str) -> date:
    try:
        if _DATE.fullmatch(raw):
            return date.fromisoformat(raw)
    except ValueError:
        pass
    raise ScalarError(f"must be a date such as 2026-11-30, not {shown(raw)}")


def read_number(raw: str, *, quoted: bool) -> Decimal:
    """The number, exact. Refuses whatever YAML readers disagree about."""
    if quoted:
        raise ScalarError(f"must be a number, not text: write {shown(raw)[1:-1]} without quotes")
    if not _DECIMAL.fullmatch(raw) and not _YAML_EXPONENT.fullmatch(raw):
        raise ScalarError(_why_no_number(raw))
    value = Decimal(raw)
    if value and not _LOWEST_EXPONENT <= value.adjusted() <= _HIGHEST_EXPONENT:
        raise ScalarError(f"{shown(raw)} is out of range")
    if abs(value) > LARGEST:
        raise ScalarError(f"{shown(raw)} is above {LARGEST}, the largest number taken")
    return value


def read_whole(raw: str, *, quoted: bool) -> int:
    value = read_number(raw, quoted=quoted)
    if value != value.to_integral_value():
        raise ScalarError(f"must be a whole number, not {shown(raw)}")
    return int(value)


def read_anything(raw: str, *, quoted: bool) -> str | bool | int | float | None:
    """For fields of a provider's own (`provider_options`): what everyone agrees on, else an error asking for quotes."""
    if quoted:
        return raw
    if raw in NULLS:
        return None
    if raw in TRUE | FALSE:
        return raw in TRUE
    if raw in YES_NO:
        raise ScalarError(f"{raw} is a yes-or-no word to YAML: write true, false or '{raw}'")
    if _DECIMAL.fullmatch(raw) or _YAML_EXPONENT.fullmatch(raw):
        value = read_number(raw, quoted=False)
        return float(value) if set(raw) & set(".eE") else int(value)
    if _looks_numeric(raw):
        raise ScalarError(f"{_why_no_number(raw)}; or put it in quotes if the text is meant")
    return raw


def _looks_numeric(raw: str) -> bool:
    kinds = (_EXPONENT, _LEADING_ZERO, _UNDERSCORES, _SEXAGESIMAL, _BASED, _NOT_FINITE)
    return any(kind.fullmatch(raw) for kind in kinds)


def _why_no_number(raw: str) -> str:
    if raw in YES_NO | TRUE | FALSE:
        return f"must be a number, not {raw}"
    if _NOT_FINITE.fullmatch(raw):
        return f"{raw} is not a finite number"
    if _EXPONENT.fullmatch(raw):
        return _plainly(raw, "is text to YAML, not a number", _plain(Decimal(raw)))
    if _LEADING_ZERO.fullmatch(raw):
        return _plainly(raw, "starts with 0, which YAML reads as octal", raw.lstrip("+-0") or "0")
    if _UNDERSCORES.fullmatch(raw):
        return _plainly(raw, "has underscores, which YAML readers treat differently", raw.replace("_", ""))
    if _SEXAGESIMAL.fullmatch(raw):
        return f"{shown(raw)} is a base-60 number to YAML: write it in decimal"
    if _BASED.fullmatch(raw):
        return f"{shown(raw)} is not decimal: write it in decimal"
    if match := _SUFFIXED.fullmatch(raw):
        return _plainly(raw, "is text, not a number", _plain(Decimal(match[1]) * _SCALE[match[2].lower()]))
    if _GROUPED.fullmatch(raw):
        return _plainly(raw, "is text, not a number", raw.replace(",", ""))
    return f"must be a number, not {shown(raw)}"


def _plain(value: Decimal) -> str | None:
    if value and not _LOWEST_EXPONENT <= value.adjusted() <= _HIGHEST_EXPONENT:
        return None
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _plainly(raw: str, what: str, instead: str | None) -> str:
    return f"{shown(raw)[1:-1]} {what}" + (f": write {instead}" if instead else "")
