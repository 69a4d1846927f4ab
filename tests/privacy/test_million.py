"""A million clients, local reports and clipping one by one, within memory; `benchmarks/models` has the seconds."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "gibibytes"),
    [("LocalDP, 1024 cells", 2.0), ("LocalDP, tree of 5 levels", 2.0), ("UserGaussian, 1024 cells", 8.0)],
)
def test_a_million_clients_fit(case, gibibytes):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.models.run", case],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    [row] = csv.reader([done.stdout.strip()])
    assert float(row[3]) < gibibytes
