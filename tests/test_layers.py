"""Imports go downwards only.

A room is a package of `fedcalib` or one of its top-level modules. Every import counts: those inside functions, and
those for type checkers only.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import fedcalib

SOURCES = Path(fedcalib.__file__).parent

# From the bottom to the top. Rooms of one line do not import each other.
ORDER = """
errors types
display files numeric
registry
wire
records
federation
data
datasets
randomness
query cohort
method
accounting
privacy
metrics
estimation
training
artifacts
families
queries
flows
search
methods
transcript
loop
runtimes secagg
remote
audit export planning report
sklearn workflows
deploy
cli
fedcalib
__main__
"""
LEVEL = {room: level for level, line in enumerate(ORDER.split("\n")) for room in line.split()}

# The only rooms that import by a name in a string.
BY_NAME = {"registry"}

MODULES = {
    ".".join(("fedcalib", *path.relative_to(SOURCES).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in SOURCES.rglob("*.py")
}


def imports(module: str) -> set[str]:
    """Modules of the package that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            found |= {_target(str(node.module), alias.name) for alias in node.names}
    return {name for name in found if name.split(".")[0] == "fedcalib" and name != module}


def _target(parent: str, name: str) -> str:
    # the version is the one name that the package itself defines; its file runs before any other, so it lies lowest
    if (parent, name) == ("fedcalib", "__version__"):
        return ""
    return f"{parent}.{name}" if f"{parent}.{name}" in MODULES else parent


def room(module: str) -> str:
    """The room that a module lies in."""
    return module.split(".")[1] if "." in module else module


@cache
def imports_of_all() -> dict[str, set[str]]:
    return {module: imports(module) for module in MODULES}


@cache
def edges() -> dict[tuple[str, str], set[str]]:
    """Imports from one room to another."""
    found = defaultdict(set)
    for importer, imported in imports_of_all().items():
        for target in imported:
            if room(importer) != room(target):
                found[room(importer), room(target)].add(f"{importer} -> {target}")
    return dict(found)


def test_every_room_has_a_level_and_every_level_a_room() -> None:
    assert {room(module) for module in MODULES} == set(LEVEL)


def test_rooms_import_only_from_rooms_below() -> None:
    upward = {edge for edge in edges() if LEVEL[edge[0]] <= LEVEL[edge[1]]}
    assert not upward, sorted(one for edge in upward for one in edges()[edge])


def test_no_rooms_import_each_other_in_a_circle() -> None:
    below: dict[str, set[str]] = {name: set() for name in LEVEL}
    for upper, lower in edges():
        below[upper].add(lower)
    assert len(list(TopologicalSorter(below).static_order())) == len(LEVEL)  # a circle raises CycleError


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert len(list(TopologicalSorter(imports_of_all()).static_order())) == len(MODULES)


def test_only_the_registry_imports_modules_by_a_name_in_a_string() -> None:
    dynamic = {room(module) for module, path in MODULES.items() if "import_module(" in path.read_text("utf-8")}
    assert dynamic <= BY_NAME
