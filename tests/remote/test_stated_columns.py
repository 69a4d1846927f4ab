"""Columns that a site states beside scores and labels, for jobs about groups and a second model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import wire
from fedcalib.deploy import certificates
from fedcalib.deploy.flower import serve
from fedcalib.deploy.job import Job
from fedcalib.deploy.node import WatchedSite
from fedcalib.errors import TooFewClients
from tests.remote.test_node import NAMES, log, places, runtime

ALLOW = 'privacy_models = ["DistributedDP", "SecAgg"]\nepsilon_a_run = 5\nepsilon_a_query = 5\n'
JOBS = {
    "grouped-metrics": {"column": "sex", "groups": ["F", "M"]},
    "compare-models": {"rival": "other"},
    "domain-temperatures": {"domains": 2, "column": "region"},
}
STATED = {"groups": "sex,region", "rival": "other"}


def sites(folder: Path, **stated: str) -> dict[str, WatchedSite]:
    certificates.make(folder / "keys", NAMES, ["localhost"])
    for seed, name in enumerate(NAMES):
        rng = np.random.default_rng(seed)
        rows = [
            f"{rng.random():.4f},{rng.integers(2)},{rng.choice(['F', 'M', ''])},{rng.integers(3)},{rng.random():.3f}"
            for _ in range(80)
        ]
        (folder / f"{name}.csv").write_text("score,label,sex,region,other\n" + "\n".join(rows) + "\n")
        (folder / f"{name}.toml").write_text(ALLOW)
    return {name: WatchedSite(places(folder, name) | stated) for name in NAMES}


def job(method: str) -> Job:
    return Job(method, "distributed", 3, epsilon=1.0, settings=JOBS[method])


@pytest.mark.parametrize("method", JOBS)
def test_a_job_about_a_stated_column_runs(method: str, tmp_path: Path) -> None:
    everybody = runtime(tmp_path, sites(tmp_path, **STATED))
    serve(job(method), everybody, tmp_path / "server" / "job", tmp_path / "out")
    document = json.loads((tmp_path / "out" / "result.json").read_text())
    assert document["privacy"]["epsilon"] == pytest.approx(1.0)
    assert fc.load(tmp_path / "out" / document["artifact"]) is not None


@pytest.mark.parametrize("method", JOBS)
@pytest.mark.parametrize("stream", ["yes", "no"])
def test_exact_sums_equal_those_in_process(method: str, stream: str, tmp_path: Path) -> None:
    asked = job(method).build_method()
    asked = fc.methods.GroupedMetrics("sex", ("F", "M")) if method == "grouped-metrics" else asked
    found = fc.run(asked, runtime(tmp_path, sites(tmp_path, stream=stream, **STATED)), fc.SecAgg()).artifact
    files = [str(tmp_path / f"{name}.csv") for name in NAMES]
    pooled = fc.read(files, rival="other", groups=("sex", "region"))
    assert wire.dumps(found) == wire.dumps(fc.run(asked, fc.InProcess(pooled), fc.SecAgg()).artifact)


@pytest.mark.parametrize("method", JOBS)
def test_a_column_that_a_site_does_not_state_costs_nobody_anything(method: str, tmp_path: Path) -> None:
    everybody = sites(tmp_path)
    with pytest.raises(TooFewClients, match=r"states no column of that name.* --group or --rival"):
        fc.run(job(method).build_method(), runtime(tmp_path, everybody), fc.DistributedDP(epsilon=1.0))
    for name in NAMES:
        assert not any(line["action"] == "ask" for line in log(tmp_path, name))
        refused = next(line for line in log(tmp_path, name) if line["outcome"] == "refused")
        assert refused["word"] == "columns"
        assert "found none" in str(refused["reason"])


def test_a_stated_column_that_the_file_lacks_is_named_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(fc.errors.InputError, match=r"'age'.*north\.csv"):
        sites(tmp_path, groups="age")["north"].open()
