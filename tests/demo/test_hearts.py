"""The data set that ships with the package, and the demonstration on it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcalib as fc
from fedcalib.cli.app import run
from fedcalib.datasets import HEART_DISEASE

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data" / "heart_disease_4sites" / "heart_disease.csv"


def test_the_data_is_small_and_says_where_it_comes_from() -> None:
    licence = HEART_DISEASE.with_suffix(".txt").read_text(encoding="utf-8")
    assert HEART_DISEASE.stat().st_size + len(licence) < 100_000
    assert "CC BY 4.0" in licence
    assert all(name in licence for name in ("Janosi", "Steinbrunn", "Pfisterer", "Detrano"))


def test_four_hospitals_are_loaded() -> None:
    frame = fc.datasets.load_heart_disease()
    federation = fc.read(frame, site="hospital", label="disease", score="risk")
    assert dict(zip(federation.names or (), federation.sizes.tolist(), strict=True)) == {
        "cleveland": 303,
        "hungarian": 294,
        "switzerland": 123,
        "va": 200,
    }
    shares = [round(float(client.labels.mean()), 3) for client in federation.clients()]
    assert shares == [0.459, 0.361, 0.935, 0.745], "as the source states them"


def test_loading_needs_no_scikit_learn() -> None:
    code = "import sys, fedcalib as fc; fc.datasets.load_heart_disease(); print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="the data is not in ../shared")
def test_the_script_makes_the_file_again(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    script = ROOT / "examples" / "heart_disease" / "train.py"
    subprocess.run([sys.executable, script, SHARED, "--out", tmp_path / "again.csv"], check=True)
    again, shipped = pd.read_csv(tmp_path / "again.csv"), pd.read_csv(HEART_DISEASE)
    np.testing.assert_allclose(again.pop("risk"), shipped.pop("risk"), atol=2e-3)  # solvers differ a little
    pd.testing.assert_frame_equal(again, shipped)


def test_the_demo_runs_the_command_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCALIB_STATE", str(tmp_path / "state"))
    assert run(["demo"]) == 0
    said = capsys.readouterr()
    shown = next(line for line in (said.out + said.err).splitlines() if line.startswith("  fedcalib calibrate"))
    folder = Path("fedcalib-demo")
    assert {"calibrator.json", "result.json", "report.html", "heart_disease.csv"} <= {p.name for p in folder.iterdir()}
    assert run([*shown.split()[1:], "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["replayed"] and document["records"] == 920
    assert document["before"]["ece"]["value"] > document["after"]["ece"]["value"]


def test_the_demo_takes_an_epsilon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip  # noqa: E501
    monkeypatch.setenv("FEDCALIB_STATE", str(tmp_path / "state"))
    words = ["demo", "--epsilon", "3", "--simulate-seed", "1", "--out", str(tmp_path / "out"), "--format", "json"]
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["privacy"]["epsilon"] == 3.0
