"""Flower: every method over its simulation engine, with the app that its own nodes run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.fleet import every
from tests.engines.federation import CLASSES, NAMES, check_work, work, write_sites

pytest.importorskip("ray")

ROOT = Path(__file__).resolve().parents[2]


def simulate(folder: Path, classes: int) -> None:
    """The work of the server, on three virtual nodes that find their files by their numbers."""
    import json

    from fedcalib.deploy import flower

    def settings(node: object) -> dict[str, str]:
        path = folder / "sites" / NAMES[int(node["partition-id"])] / "fedcalib.json"  # type: ignore[index]
        return dict(json.loads(path.read_text()))

    app = flower.client_app(
        lambda node: flower.records_of(settings(node)), lambda node: flower.policy_of(settings(node)), settings
    )
    flower._app = lambda _: app
    flower._run(folder, len(NAMES), 1, lambda grid: work(flower.FlowerTransport(grid), folder, classes))


@pytest.mark.e2e
@pytest.mark.slow
@every
@pytest.mark.parametrize("classes", CLASSES)
def test_every_method_has_the_same_answer_as_in_process(tmp_path: Path, classes: int) -> None:
    """To the last bit under SecAgg; noise under DistributedDP has the same law; policies refuse what they should."""
    write_sites(tmp_path, classes)
    script = (
        "import sys; from pathlib import Path; from tests.engines.test_flower import simulate; "
        "simulate(Path(sys.argv[1]), int(sys.argv[2]))"
    )
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), str(classes)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert (tmp_path / "found.json").exists(), done.stderr[-3000:]
    check_work(tmp_path, classes)
