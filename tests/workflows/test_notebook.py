"""Workflows from a notebook: the same figures as from the shell, without the shell."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fedcalib as fc
from fedcalib.accounting.ledger import Ledger
from fedcalib.cli.app import run
from fedcalib.errors import BudgetError, InputError
from fedcalib.loop import Step, Total
from fedcalib.training import SoftmaxRegression
from fedcalib.workflows import apply, calibrate, evaluate, train
from tests.cli.conftest import overconfident

FLAGS = ["--privacy", "distributed", "--epsilon", "2", "--simulate-seed", "5", "--format", "json"]
TOLD: dict[str, Any] = {"privacy": fc.DistributedDP(2.0), "simulate": 5}


@pytest.fixture
def scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    overconfident(1200, 4, 0).to_csv(tmp_path / "scores.csv", index=False)
    return tmp_path / "scores.csv"


def shell(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*map(str, words), "--state", "state"]) == 0
    document = json.loads(capsys.readouterr().out)
    return {name: value for name, value in document.items() if name not in ("schema_version", "files")}


def as_json(result: Any) -> Any:
    return json.loads(json.dumps(result.to_json()))


@pytest.mark.parametrize("kind", ["file", "frame", "federation"])
def test_a_calibration_equals_the_commands(scores: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    told = shell(capsys, "calibrate", scores, "--method", "fed-bin", "--out", "out", *FLAGS)
    sources = {"file": scores, "frame": pd.read_csv(scores), "federation": fc.read(scores)}
    done = calibrate(sources[kind], fc.FedBin(), **TOLD)
    assert as_json(done) == told
    assert set(done.save("mine")) == {"calibrator", "result", "report", "reliability"}
    assert Path("mine/calibrator.json").read_bytes() == Path("out/calibrator.json").read_bytes()
    frame = done.to_frame().set_index("metric")
    assert frame.loc["ece", "after"] == told["after"]["ece"]["value"]
    done.report("page.html")
    assert Path("page.html").read_bytes() == Path("mine/report.html").read_bytes()


def test_an_evaluation_equals_the_commands(scores: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(evaluate(scores, **TOLD)) == shell(capsys, "evaluate", scores, *FLAGS)
    told = shell(capsys, "evaluate", scores, "--out", "out", *FLAGS)
    done = evaluate(scores, **TOLD)
    assert as_json(done) == {**told, "replayed": False}
    done.save("mine")
    assert Path("mine/performance.json").read_bytes() == Path("out/performance.json").read_bytes()
    assert done.to_frame().set_index("metric").loc["auc", "measured_low"] == told["metrics"]["auc"]["low"]
    done.report("page.html")
    pages = [Path(place).read_text() for place in ("page.html", "out/report.html")]
    assert "<dd>evaluate(...) in Python</dd>" in pages[0]
    assert "<dd>fedcalib evaluate " in pages[1]
    assert (
        len(
            {
                re.sub(
                    r'<div[^>]*><dt>Command</dt>.*?</dd>|digest of.*?</td>|"replayed": \w+', "", page, flags=re.DOTALL
                )
                for page in pages
            }
        )
        == 1
    )


def test_a_calibrator_is_applied_and_measured(scores: Path) -> None:
    done = calibrate(scores, fc.PlattScaling(), fc.Open(), holdout=0)
    assert apply(done.calibrator, scores, "calibrated.csv").records == 1200
    again = evaluate(pd.read_csv("calibrated.csv"), score="calibrated")
    assert again.metrics.nll is not None
    after = evaluate(scores, calibrator=done.calibrator).metrics.nll
    assert after is not None
    assert again.metrics.nll.value == pytest.approx(after.value, abs=1e-9)


def test_the_same_call_goes_on_where_it_stopped(scores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second conversation fails once; the first is not held again, and the query that was lost is paid twice."""
    Ledger("ledger.db").limit("default", 2.0)
    kept: dict[str, Any] = {"state": "state", "ledger": "ledger.db", "privacy": fc.DistributedDP(1.0)}
    total, sent = fc.InProcess.total, []

    def failing(self: fc.InProcess, step: Step) -> Total:
        sent.append(type(step.query).__name__)
        if len(sent) == 2:
            raise InputError("cut short")
        return total(self, step)

    monkeypatch.setattr(fc.InProcess, "total", failing)
    with pytest.raises(InputError, match="cut short"):
        calibrate(scores, fc.FedBin(), **kept)
    done = calibrate(scores, fc.FedBin(), **kept)
    assert [name == "LabelHistogram" for name in sent] == [True, False, False]
    assert not done.replayed
    assert done.privacy.epsilon == float(Ledger("ledger.db").account("default").epsilon) == 2.0
    again = calibrate(scores, fc.FedBin(), **kept)
    assert again.replayed
    assert again.to_json()["after"] == done.to_json()["after"]
    with pytest.raises(BudgetError):
        calibrate(scores, fc.FedBin(bins=4), **kept)


def test_records_that_are_left_out_become_warnings(scores: Path) -> None:
    table = pd.read_csv(scores)
    table.loc[3, "score"] = float("nan")
    with pytest.warns(UserWarning, match="1 of 1200 records in the frame"):
        done = evaluate(table)
    assert done.warnings[0].startswith("Fewer than 11 records were left out"), "a result shows no small count"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluate(fc.read(table.drop(columns="patient").fillna(0.5))).counts == {"sites": 4, "records": 1200}


def test_training_leaves_scores_to_calibrate(scores: Path) -> None:
    table = pd.read_csv(scores)
    inputs = table[["score"]].to_numpy()
    records = fc.Records.of_scores(table.score, table.label, inputs=inputs)
    federation = fc.Federation.by_site(records, table.site)
    done = train(federation, fc.methods.FedAvg(SoftmaxRegression(1, 2), rounds=2), repair=True, simulate=1)
    assert set(done.save("model")) == {"model", "head", "scored"}
    assert calibrate("model/scored.parquet", fc.OneShotTemperature(), fc.Open()).before is not None


def test_a_notebook_needs_no_shell() -> None:
    code = (
        "import sys, numpy as np, fedcalib as fc\n"
        "from fedcalib.workflows import calibrate\n"
        "score = np.linspace(0.01, 0.99, 300)\n"
        "records = fc.Records.of_scores(score, np.arange(300) % 2)\n"
        "done = calibrate(fc.Federation.grouped(records, np.arange(300) // 100), fc.FedBin(), fc.SecAgg())\n"
        "done.files()\n"
        "print([name for name in ('typer', 'rich', 'click', 'fedcalib.cli') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
