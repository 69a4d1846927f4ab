"""Frozen dataclasses to JSON text and back, where the expected type decides and never the data.

Every field is checked against its annotation: str, int, bool, bytes (base64), Fraction, another dataclass, a tuple of
one of them, or one of them or None. Missing, unknown and repeated fields are refused.
"""

from __future__ import annotations

import binascii
import dataclasses
import json
import re
import types
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from fedcalib.errors import WireError

T = TypeVar("T")
Reader: TypeAlias = Callable[[Any], Any]

_LARGEST_INT = 1 << 53  # the integers that every JSON reader keeps exact
_FRACTION = re.compile(r"(\d{1,15})/(\d{1,15})")


def dumps(kind: str, value: object) -> str:
    """Write a dataclass as JSON text under the name of its kind."""
    return f'{{"kind":{json.dumps(kind)},{_fields_text(value)}}}'


def loads(kind: str, cls: type[T], text: str | bytes) -> T:
    """Read a dataclass of one kind from JSON text."""
    data = _parse(text)
    if not isinstance(data, dict):
        raise WireError(f"Expected a JSON object with a {kind}, found {type(data).__name__}.")
    if data.pop("kind", None) != kind:
        raise WireError(f"Expected a message of kind {kind!r}, found another; send it to the handler of its kind.")
    value: T = _read(cls, data)
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


def _text(value: object) -> str:
    """Write a value as JSON; base64 needs no escaping, which is why long vectors do not pass through `json`."""
    if isinstance(value, bytes):
        return f'"{binascii.b2a_base64(value, newline=False).decode("ascii")}"'
    if isinstance(value, tuple):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, Fraction):
        return f'"{value.numerator}/{value.denominator}"'
    if value is None or isinstance(value, str | int):
        return json.dumps(value)
    return f"{{{_fields_text(value)}}}"


def _fields_text(value: object) -> str:
    cls: Any = type(value)
    return ",".join(f'"{name}":{_text(getattr(value, name))}' for name in _fields(cls))


@lru_cache(maxsize=64)
def _fields(cls: Any) -> dict[str, Reader]:
    """Prepare a reader for every field of a dataclass."""
    hints = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    return {name: _reader(hints[name], f"{cls.__name__}.{name}") for name in names}


def _reader(hint: Any, where: str) -> Reader:
    if get_origin(hint) in (Union, types.UnionType):
        some = _reader(get_args(hint)[0], where)
        return lambda data: None if data is None else some(data)
    if get_origin(hint) is tuple:
        return _items_reader(_reader(get_args(hint)[0], where), where)
    if dataclasses.is_dataclass(hint):
        return lambda data: _read(hint, data)
    readers = {bytes: _read_bytes, Fraction: _read_fraction, int: _read_int}
    return partial(readers[hint], where) if hint in readers else partial(_read_exactly, hint, where)


def _read(cls: Any, data: Any) -> Any:
    fields = _fields(cls)
    if not isinstance(data, dict) or data.keys() != fields.keys():
        found = sorted(data)[:8] if isinstance(data, dict) else type(data).__name__
        raise WireError(f"Expected exactly the fields {sorted(fields)} of {cls.__name__}, found {found}.")
    return cls(**{name: read(data[name]) for name, read in fields.items()})


def _items_reader(read: Reader, where: str) -> Reader:
    def read_items(data: Any) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise WireError(f"Expected a list in {where}, found {type(data).__name__}.")
        return tuple(map(read, data))

    return read_items


def _read_exactly(kind: type, where: str, data: Any) -> Any:
    if type(data) is not kind:
        raise WireError(f"Expected {kind.__name__} in {where}, found {type(data).__name__}.")
    return data


def _read_int(where: str, data: Any) -> int:
    number: int = _read_exactly(int, where, data)
    if not 0 <= number < _LARGEST_INT:
        raise WireError(f"Expected a count below 2^53 in {where}, found a number outside.")
    return number


def _read_bytes(where: str, data: Any) -> bytes:
    if type(data) is not str:
        raise WireError(f"Expected base64 text in {where}, found {type(data).__name__}.")
    try:
        raw = binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:
        raise WireError(f"Expected base64 text in {where}, found other characters.") from error
    # Spare bits of the last character must be zero, or two texts would mean the same bytes.
    tail = raw[len(raw) - (len(raw) % 3 or 3) :] if raw else b""
    if binascii.b2a_base64(tail, newline=False).decode() != data[-4:]:
        raise WireError(f"Expected canonical base64 in {where}, found spare bits.")
    return raw


def _read_fraction(where: str, data: Any) -> Fraction:
    match = _FRACTION.fullmatch(data) if isinstance(data, str) and data.isascii() else None
    if match is None or int(match[2]) == 0:
        raise WireError(f"Expected a fraction such as 2/3 in {where}, found something else.")
    return Fraction(int(match[1]), int(match[2]))
