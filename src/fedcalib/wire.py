"""Frozen dataclasses to JSON text and back: one strict parser and two forms of message.

**Tagged** (`dumps`, `loads`): a dataclass becomes `{"type": NAME, "fields": {...}}`; arrays, fractions and non-finite
floats have tagged forms of their own. The data names the type, so decoding builds only what the registry lists, checks
every field, and never runs anything else. Files and messages between a server and its sites use this form.

**Expected** (`dumps_as`, `loads_as`): the expected type decides and never the data. Every field is checked against its
annotation: str, int, bool, bytes (base64), Fraction, another dataclass, a tuple of one of them, or one of them or None.
Missing and unknown fields are refused. Secure aggregation uses this form.

Both refuse repeated keys, NaN and infinity as numbers, numbers of unbounded size, and base64 that is not canonical.
"""

from __future__ import annotations

import binascii
import dataclasses
import json
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from fedcalib.errors import FedcalibError, WireError

T = TypeVar("T")
Lookup: TypeAlias = Callable[[str], type]
Reader: TypeAlias = Callable[[Any], Any]

ADDED = {"added": True}  # metadata of a field that older files lack: it is written only where it is not its default

_DTYPES = ("float32", "float64", "int64", "uint64", "int8", "uint8", "int32", "bool")
_MAX_ARRAY_BYTES = 1 << 31
_MAX_DEPTH = 32
_INTS = range(-(1 << 63), 1 << 64)  # every signed or unsigned word
_COUNTS = range(1 << 53)  # the integers that every JSON reader keeps exact
_FRACTION = re.compile(r"(-?[0-9]{1,400})(?:/([0-9]{1,400}))?")  # a double as a fraction has at most 324 digits
_SMALL_FRACTION = re.compile(r"([0-9]{1,15})/([0-9]{1,15})")


def parse(text: str | bytes) -> Any:
    """Plain JSON data of a text; every way in which that can fail becomes a `WireError`."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"Expected JSON text, found something else: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise WireError("Expected each field once, found one repeated.")
    return data


def _no_constant(name: str) -> Any:
    raise WireError(f"Expected finite numbers, found {name}.")


def _base64(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).decode("ascii")


def _read_bytes(where: str, data: Any) -> bytes:
    if type(data) is not str:
        raise WireError(f"Expected base64 text in {where}, found {type(data).__name__}.")
    try:
        raw = binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:
        raise WireError(f"Expected base64 text in {where}, found other characters.") from error
    # Spare bits of the last character must be zero, or two texts would mean the same bytes.
    tail = raw[len(raw) - (len(raw) % 3 or 3) :] if raw else b""
    if _base64(tail) != data[-4:]:
        raise WireError(f"Expected canonical base64 in {where}, found spare bits.")
    return raw


def _read_fraction(pattern: re.Pattern[str], where: str, data: Any) -> Fraction:
    # Fraction("1e2000000000") would take hours, so the digits are bounded before they are read
    match = pattern.fullmatch(data) if isinstance(data, str) else None
    if match is None or int(match[2] or 1) == 0:
        raise WireError(f"Expected a fraction such as 2/3 in {where}, found something else.")
    return Fraction(int(match[1]), int(match[2] or 1))


def dumps(value: Any) -> str:
    """A value as canonical JSON text."""
    return json.dumps(encode(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def loads(text: str | bytes) -> Any:
    """The value of JSON text."""
    return decode(parse(text))


def fingerprint(value: Any) -> str:
    """The hash of a value's canonical JSON."""
    return sha256(dumps(value).encode()).hexdigest()


def encode(value: Any) -> Any:  # noqa: PLR0911 - one line per kind of value
    """A value as plain JSON data."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {"map": {str(key): encode(item) for key, item in value.items()}}
    if isinstance(value, np.ndarray):
        return _encode_array(value)
    if isinstance(value, np.generic):
        return encode(value.item())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {name: encode(item) for name, item in _written(value)}
        return {"type": type(value).__name__, "fields": fields}
    raise WireError(f"Expected a value that can be sent, found {type(value).__name__}.")


def _written(value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a dataclass that are written, so that a file without later ones stays as it was."""
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if not (field.metadata.get("added") and type(item) is type(field.default) and item == field.default):
            yield field.name, item


def _encode_array(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    if array.dtype.name not in _DTYPES:
        raise WireError(f"Expected an array of {', '.join(_DTYPES)}, found {array.dtype}.")
    raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return {"array": array.dtype.name, "shape": list(array.shape), "data": _base64(raw)}


def decode(data: Any, lookup: Lookup | None = None, depth: int = 0) -> Any:
    """The value of plain JSON data; lists come back as tuples."""
    if lookup is None:
        from fedcalib.registry import lookup as registered

        lookup = registered
    if depth > _MAX_DEPTH:
        raise WireError(f"Expected data nested at most {_MAX_DEPTH} deep, found more.")
    if data is None or isinstance(data, bool | int | float | str):
        return _decode_plain(data)
    if isinstance(data, list):
        return tuple(decode(item, lookup, depth + 1) for item in data)
    if not isinstance(data, dict):
        raise WireError(f"Expected JSON data, found {type(data).__name__}.")
    return _decode_tagged(data, lookup, depth)


def _decode_plain(data: Any) -> Any:
    if type(data) is int and data not in _INTS:
        raise WireError("Expected whole numbers of at most 64 bits, found a larger one.")
    if type(data) is float and not math.isfinite(data):  # 1e999 is JSON, and reads as infinity
        raise WireError("Expected finite numbers, found one that is too large.")
    return data


def _decode_tagged(data: dict[str, Any], lookup: Lookup, depth: int) -> Any:
    keys = set(data)
    if keys == {"type", "fields"}:
        return _decode_dataclass(data, lookup, depth)
    if keys == {"map"} and isinstance(data["map"], dict):
        return {str(key): decode(item, lookup, depth + 1) for key, item in data["map"].items()}
    if keys == {"float"} and data["float"] in ("inf", "-inf", "nan"):
        return float(data["float"])
    if keys == {"fraction"}:
        return _read_fraction(_FRACTION, "a tagged value", data["fraction"])
    if keys == {"array", "shape", "data"}:
        return _decode_array(data)
    raise WireError(f"Expected a tagged value, found an object with the keys {sorted(map(str, keys))[:5]}.")


def _decode_array(data: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    name, shape = data["array"], data["shape"]
    if name not in _DTYPES or not isinstance(shape, list) or len(shape) > 8:
        raise WireError("Expected an array with a known type and shape, found something else.")
    if not all(type(side) is int and 0 <= side < _MAX_ARRAY_BYTES for side in shape):
        raise WireError("Expected the sides of an array to be counts, found something else.")
    dtype = np.dtype(name).newbyteorder("<")
    raw = _read_bytes("an array", data["data"])
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise WireError(f"Expected {math.prod(shape)} numbers in an array, found {len(raw) // dtype.itemsize}.")
    return np.frombuffer(raw, dtype=dtype).astype(np.dtype(name)).reshape(shape)


def _decode_dataclass(data: Mapping[str, Any], lookup: Lookup, depth: int) -> Any:
    name, fields = data["type"], data["fields"]
    if not isinstance(name, str) or not isinstance(fields, dict):
        raise WireError("Expected a type name and its fields, found something else.")
    cls = lookup(name)
    if not dataclasses.is_dataclass(cls):
        raise WireError(f"Expected a type that can be sent, found {name}, which sites only name.")
    hints = _hints(cls)
    if not fields.keys() <= hints.keys():
        more = sorted(fields.keys() - hints.keys())[:5]
        raise WireError(f"Expected the fields {sorted(hints)} of {name}, found {more} too.")
    values = {key: _fit(decode(item, lookup, depth + 1), hints[key], f"{name}.{key}") for key, item in fields.items()}
    try:
        return cls(**values)
    except FedcalibError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        raise WireError(f"Expected a valid {name}, found fields that do not make one: {error}") from error


@lru_cache(maxsize=1024)  # a message holds a type many times, and to resolve its hints costs more than to read it
def _hints(cls: Any) -> dict[str, Any]:
    """The type of every field of a dataclass."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _fit(value: Any, hint: Any, where: str) -> Any:
    """Check simple fields by their annotation; composite ones are checked by the classes themselves."""
    if hint is float and type(value) is int:
        return float(value)
    if hint in (int, float, str, bool) and type(value) is not hint:
        raise WireError(f"Expected {hint.__name__} in {where}, found {type(value).__name__}.")
    if get_origin(hint) is tuple and not isinstance(value, tuple):
        raise WireError(f"Expected a list in {where}, found {type(value).__name__}.")
    if dataclasses.is_dataclass(hint) and not isinstance(value, hint if isinstance(hint, type) else object):
        raise WireError(f"Expected another type in {where}, found {type(value).__name__}.")
    return value


def dumps_as(kind: str, value: object) -> str:
    """Write a dataclass as JSON text under the name of its kind."""
    return f'{{"kind":{json.dumps(kind)},{_fields_text(value)}}}'


def loads_as(kind: str, cls: type[T], text: str | bytes) -> T:
    """Read a dataclass of one kind from JSON text."""
    data = parse(text)
    if not isinstance(data, dict):
        raise WireError(f"Expected a JSON object with a {kind}, found {type(data).__name__}.")
    if data.pop("kind", None) != kind:
        raise WireError(f"Expected a message of kind {kind!r}, found another; send it to the handler of its kind.")
    value: T = _read(cls, data)
    return value


def _text(value: object) -> str:
    """Write a value as JSON; base64 needs no escaping, which is why long vectors do not pass through `json`."""
    if isinstance(value, bytes):
        return f'"{_base64(value)}"'
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
    """A reader for every field of a dataclass."""
    return {name: _reader(hint, f"{cls.__name__}.{name}") for name, hint in _hints(cls).items()}


def _reader(hint: Any, where: str) -> Reader:
    if get_origin(hint) in (Union, types.UnionType):
        some = _reader(get_args(hint)[0], where)
        return lambda data: None if data is None else some(data)
    if get_origin(hint) is tuple:
        return partial(_read_items, _reader(get_args(hint)[0], where), where)
    if dataclasses.is_dataclass(hint):
        return partial(_read, hint)
    if hint is Fraction:
        return partial(_read_fraction, _SMALL_FRACTION, where)
    readers = {bytes: _read_bytes, int: _read_count}
    return partial(readers[hint], where) if hint in readers else partial(_read_exactly, hint, where)


def _read(cls: Any, data: Any) -> Any:
    fields = _fields(cls)
    if not isinstance(data, dict) or data.keys() != fields.keys():
        found = sorted(data)[:8] if isinstance(data, dict) else type(data).__name__
        raise WireError(f"Expected exactly the fields {sorted(fields)} of {cls.__name__}, found {found}.")
    return cls(**{name: read(data[name]) for name, read in fields.items()})


def _read_items(read: Reader, where: str, data: Any) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise WireError(f"Expected a list in {where}, found {type(data).__name__}.")
    return tuple(map(read, data))


def _read_exactly(kind: type, where: str, data: Any) -> Any:
    if type(data) is not kind:
        raise WireError(f"Expected {kind.__name__} in {where}, found {type(data).__name__}.")
    return data


def _read_count(where: str, data: Any) -> int:
    number: int = _read_exactly(int, where, data)
    if number not in _COUNTS:
        raise WireError(f"Expected a count below 2^53 in {where}, found a number outside.")
    return number
