"""Files that an earlier version wrote: one for every type that can be saved or sent. They must load for ever.

`python -m tests.compatibility.test_stored` writes the file of a new type, and never changes one that is there. It takes
the smallest instance that the contract's methods and privacy models make.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib import registry, wire
from fedcalib.artifacts import Artifact
from fedcalib.errors import FedcalibError
from tests.compatibility.instances import INSTANCES
from tests.contract.subjects import METHODS, MODELS, SCHEMAS, federation

FOLDER = Path(__file__).parent / "version_1"
BY_NAME = {type(instance).__name__: instance for instance in INSTANCES}


def write(instance: object, path: Path) -> None:
    """Save an artifact as users do, and anything else as it is sent."""
    if isinstance(instance, Artifact):
        instance.save(path)
    else:
        path.write_text(wire.dumps(instance) + "\n", encoding="utf-8")


def test_every_type_is_stored_once() -> None:
    own = {row.name for row in registry.ROWS if row.wire}
    assert len(BY_NAME) == len(INSTANCES)
    assert set(BY_NAME) <= own
    assert {path.stem for path in FOLDER.iterdir()} == own, "write: python -m tests.compatibility.test_stored"


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.stem)
def test_stored_files_load_and_are_written_as_they_were(path: Path, tmp_path: Path) -> None:
    kind = registry.lookup(path.stem)
    loaded = fc.load(path) if issubclass(kind, Artifact) else wire.loads(path.read_bytes())
    assert type(loaded) is kind
    if path.stem in BY_NAME:  # equal in every field; arrays have no plain equality
        assert wire.dumps(loaded) == wire.dumps(BY_NAME[path.stem])
    write(loaded, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def parts(value: object) -> Iterator[object]:
    """A value and everything inside of it."""
    yield value
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    for part in inside:
        yield from parts(part)


def made() -> Iterator[object]:
    """What the contract's methods and privacy models are, send and return."""
    for method, schema in product(METHODS, SCHEMAS):
        with suppress(FedcalibError):  # a method for two classes meets four
            plan, data = fc.method.Plan.of(method, schema), federation(schema.classes)
            yield from parts((method, plan.queries))
            yield from parts(fc.run(method, fc.InProcess(data), fc.Open()).artifact)
            for privacy in MODELS:
                yield from parts(
                    (privacy, privacy.mechanism(plan.queries[0], plan, fc.cohort.Cohort(5), fc.Everyone()))
                )


if __name__ == "__main__":
    missing = {name for name in registry.names() if not (FOLDER / f"{name}.json").exists()}
    found = [one for one in (made() if missing else ()) if type(one).__name__ in missing]
    for one in sorted(found, key=lambda one: len(wire.dumps(one)), reverse=True):
        write(BY_NAME.get(type(one).__name__, one), FOLDER / f"{type(one).__name__}.json")
