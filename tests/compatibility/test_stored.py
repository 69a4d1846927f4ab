"""Files that an earlier version wrote: one for every type that can be saved or sent. They must load for ever.

`python -m tests.compatibility.test_stored` writes the file of a new type, and never changes one that is there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib import registry, wire
from fedcalib.artifacts import Artifact
from tests.compatibility.instances import INSTANCES

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
    assert set(BY_NAME) == own
    assert {path.stem for path in FOLDER.iterdir()} == own, "write: python -m tests.compatibility.test_stored"


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.stem)
def test_stored_files_load_and_are_written_as_they_were(path: Path, tmp_path: Path) -> None:
    instance = BY_NAME[path.stem]
    loaded = fc.load(path) if isinstance(instance, Artifact) else wire.loads(path.read_bytes())
    assert type(loaded) is type(instance)
    assert wire.dumps(loaded) == wire.dumps(instance)  # equal in every field; arrays have no plain equality
    write(loaded, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


if __name__ == "__main__":
    for name, example in BY_NAME.items():
        if not (FOLDER / f"{name}.json").exists():
            write(example, FOLDER / f"{name}.json")
