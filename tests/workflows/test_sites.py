"""Workflows over sites at a distance: the same results as a deployed job writes, and as records at hand give."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcalib as fc
from fedcalib.deploy.flower import serve
from fedcalib.deploy.job import Job
from fedcalib.errors import InputError
from fedcalib.metrics.intervals import Measured
from fedcalib.workflows import calibrate, evaluate
from fedcalib.workflows.calibration import Calibration
from fedcalib.workflows.evaluation import Evaluation
from fedcalib.workflows.session import Data
from fedcalib.workflows.site_spread import Spread
from tests.contract.subjects import federation
from tests.remote.places import places

DATA = federation(2, records=3000)


def test_a_job_and_a_workflow_tell_the_same_before_and_after(tmp_path: Path) -> None:
    job = Job("platt-scaling", "secagg", sites=5, measure=True)
    served = serve(job, places(DATA).runtime(state=tmp_path / "job"), tmp_path / "job", tmp_path / "out").artifact
    done = calibrate(places(DATA).runtime(state=tmp_path / "mine"), fc.PlattScaling(), fc.SecAgg())
    assert done.before is not None
    assert done.after is not None
    assert (done.before.ece, done.after.ece) == (served.before.ece, served.after.ece)
    assert done.counts == {"sites": 5, "records": None}
    done.save(tmp_path / "saved")
    artifacts = [json.loads((tmp_path / name).read_text()) for name in ("out/artifact.json", "saved/calibrator.json")]
    assert artifacts[0] == artifacts[1]
    pages = [(tmp_path / name / "report.html").read_text() for name in ("out", "saved")]
    for page in pages:
        assert "Both were measured on the records that were fitted" in page


def test_sites_measure_what_records_at_hand_give(tmp_path: Path) -> None:
    remote = evaluate(places(DATA).runtime(state=tmp_path), fc.SecAgg())
    assert remote.to_json()["metrics"] == evaluate(DATA, fc.SecAgg()).to_json()["metrics"]


def test_a_dry_run_over_sites_asks_nobody(tmp_path: Path) -> None:
    runtime = fc.InProcess(DATA)
    planned = Calibration(Data.of(runtime), fc.FedBin(), fc.DistributedDP(1.0)).dry_run()
    done = calibrate(runtime, fc.FedBin(), fc.DistributedDP(1.0))
    assert [phase.cost() for phase in planned.phases] == [phase.cost() for phase in done.phases]
    assert planned.privacy.epsilon == done.privacy.epsilon == 1.0
    measured = Evaluation(Data.of(runtime), fc.DistributedDP(1.0)).dry_run()
    assert measured.to_json()["sites"] is None


def test_a_calibrator_cannot_be_applied_where_records_stay(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a runtime of sites"):
        evaluate(fc.InProcess(DATA), calibrator=fc.artifacts.Identity())


def _differing(sites: int, spread: float, seed: int) -> pd.DataFrame:
    """Sites whose risk differs from what the model predicts, by a standard deviation of the log-odds."""
    rng = np.random.default_rng(seed)
    score, site = rng.beta(1.2, 2.0, 600 * sites), np.repeat(np.arange(sites), 600)
    shift = spread * rng.normal(size=sites)[site]
    odds = np.log(score / (1 - score)) + shift
    label = (rng.random(len(score)) < 1 / (1 + np.exp(-odds))).astype(int)
    return pd.DataFrame({"site": site.astype(str), "score": score, "label": label})


@pytest.mark.parametrize("privacy", [fc.Open(), fc.SourceLaplace(8.0)], ids=repr)
def test_the_spread_between_sites_is_told_from_sampling_and_noise(privacy: fc.privacy.Privacy) -> None:
    alike, apart = (
        evaluate(_differing(12, spread, 1), privacy, site="site", simulate=1).to_json() for spread in (0.0, 1.0)
    )
    name = "calibration_in_the_large"
    assert alike["between_sites"][name]["i_squared"] < 0.4
    assert apart["between_sites"][name]["i_squared"] > 0.8
    assert 0.6 < apart["between_sites"][name]["deviation"] < 1.4
    assert len(apart["per_site"]) == 12


def test_a_report_has_a_forest_plot_where_sites_are_seen() -> None:
    table = _differing(5, 1.0, 2)
    seen = evaluate(table, fc.Open(), site="site")
    assert b"AUC by site" in seen.files()["report.html"]
    hidden = evaluate(table, fc.SecAgg(), site="site")
    assert b"AUC by site" not in hidden.files()["report.html"]
    assert hidden.to_json()["between_sites"] == {}


def test_the_random_effects_mean_is_that_of_dersimonian_and_laird() -> None:
    """The figures are those of `combine_effects(..., method_re="dl")` of statsmodels 0.15.0."""
    effects, variances = [0.10, 0.28, 0.37, 0.66, 0.46, 0.19], [0.033, 0.031, 0.05, 0.011, 0.043, 0.023]
    half = [1.959964 * variance**0.5 for variance in variances]
    found = Spread.of([Measured(y, y - h, y + h) for y, h in zip(effects, half, strict=True)])
    assert found.mean.value == pytest.approx(0.35987038882673555, rel=1e-6)
    assert found.mean.high == pytest.approx(0.35987038882673555 + 1.959964 * 0.10268115494147563, rel=1e-6)
    assert found.deviation**2 == pytest.approx(0.03407771197004227, rel=1e-5)
    assert found.i_squared == pytest.approx(0.5588328085533383, rel=1e-5)


def test_scores_near_zero_make_a_ratio_that_is_not_averaged() -> None:
    """Observed over expected is about 1e300 here; its square, and a mean with such weights, would overflow."""
    table = _differing(5, 0.3, 0)
    done = evaluate(table.assign(score=table.score * 1e-300), fc.Open(), site="site")
    assert "auc" in done.to_json()["between_sites"]
    assert "observed_expected" not in done.to_json()["between_sites"]
