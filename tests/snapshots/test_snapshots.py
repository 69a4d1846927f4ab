"""What seeded runs and commands give is what is stored. See the package for how to write the files anew."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import islice

import pytest

from tests.snapshots.comparing import differences, exact
from tests.snapshots.storing import CASES, MACHINE, STORED, found, machine, stored

_SHOWN = 12
_ANEW = {
    "figures": "If this change of figures is meant, write them anew with `make snapshots` and say so in the commit.",
    "words": "Only wording is compared here: if it is meant, write it anew with `make snapshots WORDS=1`.",
}


@pytest.mark.parametrize("part", ["figures", "words"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_stored_is_found(name: str, part: str) -> None:
    for package in CASES[name].needs:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    near = not exact(machine())
    if near and CASES[name].fragile:
        pytest.skip("noise follows from the last digit of what was fitted, which this machine computes otherwise")
    apart = list(differences(stored(name)[part], found(name)[part], near))
    shown = "\n".join(islice(apart, _SHOWN))
    assert not apart, f"{name}: {len(apart)} {part} differ.\n{shown}\n{_ANEW[part]}"


def test_every_file_belongs_to_a_case() -> None:
    assert {path.stem for path in STORED.glob("*.json") if path != MACHINE} == set(CASES)


def test_figures_are_compared_to_the_last_digit() -> None:
    if not exact(machine()):
        pytest.skip("this machine computes otherwise than the one that wrote the snapshots: compared within 1e-6")
    assert list(differences({"a": [1.0, 2]}, {"a": [1.0000000000000002, 2.0]})) == [
        "/a/0: stored 1.0, found 1.0000000000000002",
        "/a/1: stored 2, found 2.0",
    ]


@pytest.mark.parametrize(
    ("stored_", "found_", "near", "count"),
    [
        ({"a": 1.0, "sha256": "x"}, {"a": 1.0 + 1e-9, "sha256": "y"}, True, 0),
        ({"a": 1.0, "sha256": "x"}, {"a": 1.0 + 1e-9, "sha256": "y"}, False, 2),
        ({"a": 1.0}, {"a": 1.001}, True, 1),
        ({"a": 1}, {"b": 1}, True, 2),
        ([1, 2], [1], False, 1),
        ({"a": None}, {"a": 0}, True, 1),
    ],
)
def test_differences_are_found(stored_: object, found_: object, near: bool, count: int) -> None:
    assert len(list(differences(stored_, found_, near))) == count
