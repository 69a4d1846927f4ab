"""The JSON codec: frozen dataclasses to JSON and back, for allow-listed types only.

A dataclass becomes `{"type": NAME, "fields": {...}}`; arrays, fractions and non-finite floats have tagged forms of
their own. Decoding builds only types that the registry names, checks every field, and never runs anything else.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from hashlib import sha256
from typing import Any, get_type_hints

import numpy as np

from fedcalib.errors import FedcalibError, WireError

_DTYPES = ("float32", "float64", "int64", "uint64", "int8", "uint8", "int32", "bool")
_MAX_ARRAY_BYTES = 1 << 31  # bytes
_MAX_DEPTH = 32


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
        fields = {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": type(value).__name__, "fields": fields}
    raise WireError(f"Expected a value that can be sent, found {type(value).__name__}.")


def decode(data: Any, lookup: Callable[[str], type] | None = None, depth: int = 0) -> Any:
    """The value of plain JSON data; lists come back as tuples."""
    if lookup is None:
        from fedcalib.registry import lookup as registered

        lookup = registered
    if depth > _MAX_DEPTH:
        raise WireError(f"Expected data nested at most {_MAX_DEPTH} deep, found more.")
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return tuple(decode(item, lookup, depth + 1) for item in data)
    if not isinstance(data, dict):
        raise WireError(f"Expected JSON data, found {type(data).__name__}.")
    return _decode_tagged(data, lookup, depth)


def _decode_tagged(data: dict[str, Any], lookup: Callable[[str], type], depth: int) -> Any:
    keys = set(data)
    if keys == {"type", "fields"}:
        return _decode_dataclass(data, lookup, depth)
    if keys == {"map"} and isinstance(data["map"], dict):
        return {str(key): decode(item, lookup, depth + 1) for key, item in data["map"].items()}
    if keys == {"float"} and data["float"] in ("inf", "-inf", "nan"):
        return float(data["float"])
    if keys == {"fraction"} and isinstance(data["fraction"], str):
        return _decode_fraction(data["fraction"])
    if keys == {"array", "shape", "data"}:
        return _decode_array(data)
    raise WireError(f"Expected a tagged value, found an object with the keys {sorted(map(str, keys))[:5]}.")


def _decode_fraction(text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError) as error:
        raise WireError(f"Expected a fraction, found {text[:40]!r}.") from error


def _encode_array(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    if array.dtype.name not in _DTYPES:
        raise WireError(f"Expected an array of {', '.join(_DTYPES)}, found {array.dtype}.")
    raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return {"array": array.dtype.name, "shape": list(array.shape), "data": base64.b64encode(raw).decode()}


def _decode_array(data: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    name, shape, text = data["array"], data["shape"], data["data"]
    if name not in _DTYPES or not isinstance(text, str) or not isinstance(shape, list) or len(shape) > 8:
        raise WireError("Expected an array with a known type and shape, found something else.")
    if not all(type(side) is int and 0 <= side < _MAX_ARRAY_BYTES for side in shape):
        raise WireError("Expected the sides of an array to be counts, found something else.")
    dtype = np.dtype(name).newbyteorder("<")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise WireError("Expected base64 data in an array, found something else.") from error
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise WireError(f"Expected {math.prod(shape)} numbers in an array, found {len(raw) // dtype.itemsize}.")
    return np.frombuffer(raw, dtype=dtype).astype(np.dtype(name)).reshape(shape)


def _decode_dataclass(data: Mapping[str, Any], lookup: Callable[[str], type], depth: int) -> Any:
    name, fields = data["type"], data["fields"]
    if not isinstance(name, str) or not isinstance(fields, dict):
        raise WireError("Expected a type name and its fields, found something else.")
    cls = lookup(name)
    if not dataclasses.is_dataclass(cls):
        raise WireError(f"Expected a type that can be sent, found {name}, which sites only name.")
    known = {field.name for field in dataclasses.fields(cls)}
    if not set(fields) <= known:
        raise WireError(f"Expected the fields {sorted(known)} of {name}, found {sorted(set(fields) - known)[:5]} too.")
    values = {key: decode(item, lookup, depth + 1) for key, item in fields.items()}
    hints = get_type_hints(cls)
    for key, value in values.items():
        values[key] = _fit(value, hints[key], f"{name}.{key}")
    try:
        return cls(**values)
    except FedcalibError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        raise WireError(f"Expected a valid {name}, found fields that do not make one: {error}") from error


def _fit(value: Any, hint: Any, where: str) -> Any:
    """Check simple fields by their annotation; composite ones are checked by the classes themselves."""
    if hint is float and type(value) is int:
        return float(value)
    if hint in (int, float, str, bool) and type(value) is not hint:
        raise WireError(f"Expected {hint.__name__} in {where}, found {type(value).__name__}.")
    if getattr(hint, "__origin__", None) is tuple and not isinstance(value, tuple):
        raise WireError(f"Expected a list in {where}, found {type(value).__name__}.")
    if dataclasses.is_dataclass(hint) and not isinstance(value, hint if isinstance(hint, type) else object):
        raise WireError(f"Expected another type in {where}, found {type(value).__name__}.")
    return value


def dumps(value: Any) -> str:
    """A value as canonical JSON text."""
    return json.dumps(encode(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def loads(text: str | bytes) -> Any:
    """The value of JSON text."""
    return decode(parse(text))


def parse(text: str | bytes) -> Any:
    """Plain JSON data of a text; every way in which that can fail becomes a `WireError`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"Expected JSON, found something else: {error}") from error


def fingerprint(value: Any) -> str:
    """The hash of a value's canonical JSON."""
    return sha256(dumps(value).encode()).hexdigest()
