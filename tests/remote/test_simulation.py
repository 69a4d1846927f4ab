"""One query over Flower's own simulation engine gives the value that the in-process runtime gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

_SCRIPT = """
import fedcalib as fc
from fedcalib import wire
from fedcalib.deploy.flower import simulate
from tests.contract.subjects import federation

data = federation(2, clients=10)
models = (fc.Open(), fc.SecAgg())
def task(flower):
    return [fc.run(fc.FedBBQ(), flower, privacy) for privacy in models]
for privacy, result in zip(models, simulate(data, 4, task), strict=True):
    expected = fc.run(fc.FedBBQ(), fc.InProcess(data), privacy)
    assert wire.dumps(result.artifact) == wire.dumps(expected.artifact), privacy
    assert result.transcript.lines[-1] == expected.transcript.lines[-1], privacy
print("equal")
"""


@pytest.mark.e2e
@pytest.mark.slow
def test_flower_simulation_equals_in_process() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], cwd=root, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["equal"], done.stderr[-3000:]
