"""How values show themselves: in one short line, and never with the records that they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Final

import numpy as np

from fedcalib.errors import InputError

_LONGEST: Final = 60  # characters of one part of a line


def brief(value: Any) -> str:
    """A dataclass as its constructor would be written, with arrays by their shape and long parts by their kind.

    Parameters
    ----------
    value
        An instance of a dataclass.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.artifacts.Temperature(1.5)
    Temperature(temperature=1.5, warning='')
    """
    parts = (f"{field.name}={_part(getattr(value, field.name))}" for field in fields(value) if field.repr)
    return f"{type(value).__qualname__}({', '.join(parts)})"


def _part(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} {value.shape}>"
    if isinstance(value, tuple | list | Mapping) and any(isinstance(one, np.ndarray) for one in _items(value)):
        return f"<{len(value)} arrays>"
    text = repr(value)
    if len(text) <= _LONGEST and "\n" not in text:
        return text
    if isinstance(value, str):
        return f"{text[: _LONGEST - 4]}...'"
    return f"<{len(value)} items>" if isinstance(value, tuple | list | Mapping) else f"{type(value).__name__}(...)"


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, Mapping) else value


def meant(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word: the known one that begins with it or is most like it, or nothing."""
    plain, words = word.lower().replace("_", "-"), {one.lower().replace("_", "-"): one for one in known}
    longer = [one for one in words if len(plain) > 2 and one.startswith(plain)]
    close = longer or get_close_matches(plain, list(words), n=1, cutoff=0.6)
    return f" Did you mean '{words[close[0]]}'?" if close else ""


def check_options(kind: type, given: Iterable[str]) -> None:
    """Refuse keywords that a class does not have, and list those that it has."""
    if not is_dataclass(kind):  # a class of somebody else, with a constructor of its own
        return
    known = [field.name for field in fields(kind) if field.init]
    for name in given:
        if name not in known:
            listed = ", ".join(known) or "it has none"
            raise InputError(f"Expected options of {kind.__name__} ({listed}), found '{name}'.{meant(name, known)}")


def check_made(value: Any, kind: type, what: str) -> None:
    """Refuse a class where an instance of it is needed, and whatever is no such thing.

    Parameters
    ----------
    value
        What was given.
    kind
        The class that it has to be an instance of.
    what
        The kind in words, with an article: "a method".
    """
    if isinstance(value, kind):
        return
    if isinstance(value, type) and issubclass(value, kind):
        needed = [field.name for field in fields(value) if _required(field)] if is_dataclass(value) else []
        call = f"{value.__name__}({', '.join(f'{name}=...' for name in needed)})"
        raise InputError(f"Expected {what}, found the class {value.__name__}; write {call} to make one of it.")
    found = value.__name__ if isinstance(value, type) else type(value).__name__
    raise InputError(f"Expected {what}, found {found}; name the arguments, such as method=... and privacy=...")


def _required(field: Field[Any]) -> bool:
    return field.init and field.default is MISSING and field.default_factory is MISSING
