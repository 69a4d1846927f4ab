"""The wire: what goes out comes back, and nothing else comes in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib import registry, wire
from fedcalib.errors import FedcalibError, WireError
from fedcalib.queries.class_tables import LabelHistogram
from fedcalib.queries.temperature import TemperatureCurve
from tests.examples import examples

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.fractions(),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(PLAIN)
def test_values_come_back(value: object) -> None:
    assert wire.loads(wire.dumps(value)) == value


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint64", "bool", "uint8"])
def test_arrays_come_back(dtype: str) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    again = wire.loads(wire.dumps(array))
    assert again.dtype == array.dtype
    assert (again == array).all()


def test_nested_values_come_back() -> None:
    join = fc.query.Join((LabelHistogram(4, 8), TemperatureCurve((0.5, 1.0), 10.0)))
    assert wire.loads(wire.dumps(join)) == join
    privacy = fc.DistributedDP(0.1, 1e-6)
    assert wire.loads(wire.dumps(privacy)) == privacy
    assert wire.loads(wire.dumps({"a": Fraction(1, 3), "b": float("inf")})) == {"a": Fraction(1, 3), "b": float("inf")}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "JSON"),
        ('{"type":"Popen","fields":{}}', "registered"),
        ('{"type":"LabelHistogram","fields":{"classes":2,"bins":3,"evil":1}}', "evil"),
        ('{"type":"LabelHistogram","fields":{"classes":"2","bins":3}}', "int"),
        ('{"type":"LabelHistogram","fields":{"classes":2}}', "LabelHistogram"),
        ('{"type":"LabelHistogram","fields":[]}', "fields"),
        ('{"type":"TemperatureCurve","fields":{"inverses":3,"reach":1.0}}', "list"),
        ('{"array":"object","shape":[1],"data":""}', "array"),
        ('{"array":"float64","shape":[2],"data":"AAAA"}', "numbers"),
        ('{"array":"float64","shape":[-1],"data":"AAAA"}', "counts"),
        ('{"array":"float64","shape":[1],"data":"%%%%"}', "base64"),
        ('{"fraction":"1/0"}', "fraction"),
        ('{"what":1}', "what"),
        ("[" * 100 + "]" * 100, "deep"),
        ('{"fraction":"1e5"}', "fraction"),
        ('{"fraction":"1e2000000000"}', "fraction"),  # 72 bytes in a message, and hours of work
        ('{"fraction":"1_0/3"}', "fraction"),
        ('{"fraction":" 1/3"}', "fraction"),
        ('{"fraction":"1/' + "3" * 401 + '"}', "fraction"),
        ('{"fraction":0.5}', "fraction"),
        ('{"map":{"a":1,"a":2}}', "repeated"),
        ('{"type":"LabelHistogram","type":"LabelHistogram","fields":{"classes":2,"bins":3}}', "repeated"),
        ("NaN", "finite"),
        ("[-Infinity]", "finite"),
        ("1e999", "finite"),
        ("18446744073709551616", "64 bits"),
        ("-9223372036854775809", "64 bits"),
        ("1" * 5000, "JSON"),
        ('{"array":"uint8","shape":[1],"data":"AB=="}', "spare bits"),
        ('{"array":"uint8","shape":[1],"data":"AA=\\n="}', "base64"),
        ('{"array":"uint8","shape":[1],"data":[0]}', "base64"),
    ],
)
def test_anything_else_is_refused(text: str, says: str) -> None:
    with pytest.raises(WireError, match=says):
        wire.loads(text)


@pytest.mark.parametrize("value", [2**64 - 1, -(2**63), Fraction(5e-324), Fraction(-3), Fraction(1e308)])
def test_the_largest_numbers_come_back(value: object) -> None:
    assert wire.loads(wire.dumps(value)) == value


@dataclass(frozen=True)
class Note:
    text: str
    ratio: Fraction
    raw: bytes
    parts: tuple[int, ...] = ()


def test_the_expected_type_decides_and_not_the_data() -> None:
    note = Note("a", Fraction(2, 3), b"\0\1", (1, 2))
    text = '{"kind":"note","text":"a","ratio":"2/3","raw":"AAE=","parts":[1,2]}'
    assert wire.dumps_as("note", note) == text
    assert wire.loads_as("note", Note, text) == note
    for tagged in ('{"type":"LabelHistogram","fields":{"classes":2,"bins":3}}', '{"fraction":"1/2"}'):
        with pytest.raises(WireError, match="Expected str in Note"):
            wire.loads_as("note", Note, text.replace('"a"', tagged))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"2/3"', '"2"', "2/3"),
        ('"2/3"', '"-2/3"', "2/3"),
        ('"2/3"', '"1e5"', "2/3"),
        ('"2/3"', '"1/' + "3" * 16 + '"', "2/3"),
        ("[1,2]", f"[{2**53}]", "2\\^53"),
        ("[1,2]", "[-1]", "2\\^53"),
        ("[1,2]", "[true]", "int"),
        ("AAE=", "AAF=", "spare bits"),
        ('"text"', '"kind"', "repeated"),
        ("[1,2]", "NaN", "finite"),
        (',"parts":[1,2]', "", "exactly the fields"),
    ],
)
def test_an_expected_message_is_read_strictly(old: str, new: str, says: str) -> None:
    text = wire.dumps_as("note", Note("a", Fraction(2, 3), b"\0\1", (1, 2)))
    with pytest.raises(WireError, match=says):
        wire.loads_as("note", Note, text.replace(old, new))


def test_only_sendable_values_go_out() -> None:
    with pytest.raises(WireError, match="object"):
        wire.dumps(object())
    with pytest.raises(WireError, match="array"):
        wire.dumps(np.array(["a"]))


@settings(max_examples=examples(300))
@given(st.data())
def test_mutated_messages_raise_typed_errors_only(data: st.DataObject) -> None:
    text = wire.dumps(fc.query.Join((LabelHistogram(4, 8), TemperatureCurve((0.5, 1.0), 10.0))))
    at = data.draw(st.integers(0, len(text) - 1))
    patch = data.draw(st.text(max_size=3))
    try:
        wire.loads(text[:at] + patch + text[at + data.draw(st.integers(0, 3)) :])
    except FedcalibError as error:
        assert str(error)


def test_every_registered_name_exists() -> None:
    for name in registry.names():
        assert registry.lookup(name).__name__ == name


def test_a_site_can_register_its_own_type() -> None:
    @registry.register
    @dataclass(frozen=True)
    class OwnThing:
        size: int

    assert wire.loads(wire.dumps(OwnThing(3))) == OwnThing(3)
    with pytest.raises(WireError, match="registered already"):
        registry.register(type("FedBin", (), {}))


def test_json_is_canonical() -> None:
    assert json.loads(wire.dumps({"b": 1, "a": 2})) == {"map": {"a": 2, "b": 1}}
    assert wire.fingerprint({"a": 1, "b": 2}) == wire.fingerprint({"b": 2, "a": 1})
