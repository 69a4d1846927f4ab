"""Frozen dataclasses to JSON text and back, where the expected type decides and never the data.

Every field is checked against its annotation: str, int, bool, bytes (base64), Fraction, another dataclass, a tuple of
one of them, or one of them or None. Missing, unknown and repeated fields are refused.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import re
import types
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fedcalib.errors import WireError

T = TypeVar("T")

_LARGEST_INT = 1 << 53  # the integers that every JSON reader keeps exact
_FRACTION = re.compile(r"(\d{1,15})/(\d{1,15})")


def dumps(kind: str, value: object) -> str:
    """Write a dataclass as JSON text under the name of its kind."""
    return json.dumps({"kind": kind, **_encode_fields(value)}, separators=(",", ":"))


def loads(kind: str, cls: type[T], text: str | bytes) -> T:
    """Read a dataclass of one kind from JSON text."""
    data = _parse(text)
    if not isinstance(data, dict):
        raise WireError(f"Expected a JSON object with a {kind}, found {type(data).__name__}.")
    if data.pop("kind", None) != kind:
        raise WireError(f"Expected a message of kind {kind!r}, found another; send it to the handler of its kind.")
    value: T = _decode_fields(cls, data, kind)
    return value


def _parse(text: str | bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except WireError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"Expected JSON text, found something else ({type(error).__name__}).") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise WireError("Expected each field once, found one repeated.")
    return data


def _no_constant(name: str) -> Any:
    raise WireError(f"Expected finite numbers, found {name}.")


def _encode(value: object) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    return _encode_fields(value)


def _encode_fields(value: Any) -> dict[str, Any]:
    return {field.name: _encode(getattr(value, field.name)) for field in dataclasses.fields(value)}


@lru_cache(maxsize=64)
def _hints(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _decode_fields(cls: Any, data: Any, where: str) -> Any:
    hints = _hints(cls)
    if not isinstance(data, dict) or data.keys() != hints.keys():
        found = sorted(data)[:8] if isinstance(data, dict) else type(data).__name__
        raise WireError(f"Expected exactly the fields {sorted(hints)} in {where}, found {found}.")
    return cls(**{name: _decode(hint, data[name], f"{where}.{name}") for name, hint in hints.items()})


def _decode(hint: Any, data: Any, where: str) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        return None if data is None else _decode(get_args(hint)[0], data, where)
    if get_origin(hint) is tuple:
        return _decode_items(get_args(hint)[0], data, where)
    if dataclasses.is_dataclass(hint):
        return _decode_fields(hint, data, where)
    return _decode_atom(hint, data, where)


def _decode_items(hint: Any, data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise WireError(f"Expected a list in {where}, found {type(data).__name__}.")
    return tuple(_decode(hint, item, where) for item in data)


def _decode_atom(hint: Any, data: Any, where: str) -> Any:
    if hint is bytes:
        return _decode_bytes(data, where)
    if hint is Fraction:
        return _decode_fraction(data, where)
    if hint is int and type(data) is int and not 0 <= data < _LARGEST_INT:
        raise WireError(f"Expected a count below 2^53 in {where}, found a number outside.")
    if type(data) is not hint:
        raise WireError(f"Expected {hint.__name__} in {where}, found {type(data).__name__}.")
    return data


def _decode_bytes(data: Any, where: str) -> bytes:
    if not isinstance(data, str):
        raise WireError(f"Expected base64 text in {where}, found {type(data).__name__}.")
    try:
        raw = binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:
        raise WireError(f"Expected base64 text in {where}, found other characters.") from error
    # Spare bits of the last character must be zero, or two texts would mean the same bytes.
    if len(data) % 4 or data[-4:] != base64.b64encode(raw[len(raw) - (len(raw) % 3 or 3) :] if raw else b"").decode():
        raise WireError(f"Expected canonical base64 in {where}, found spare bits.")
    return raw


def _decode_fraction(data: Any, where: str) -> Fraction:
    match = _FRACTION.fullmatch(data) if isinstance(data, str) and data.isascii() else None
    if match is None or int(match[2]) == 0:
        raise WireError(f"Expected a fraction such as 2/3 in {where}, found something else.")
    return Fraction(int(match[1]), int(match[2]))
