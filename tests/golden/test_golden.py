"""Golden transcripts: what was asked and answered in simulated runs, to the last digit that a platform can keep.

A change here is a change of what travels or of what is computed from it. If it is meant, write the files anew with
`python -m tests.golden.test_golden`, and say in the change log what moved.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import wire
from tests.contract.subjects import federation
from tests.contract.test_product import numbers

HERE = Path(__file__).parent
RUNS: dict[str, tuple[fc.Method, fc.privacy.Privacy, int]] = {
    "fed-bin-secagg": (fc.FedBin(bins=4), fc.SecAgg(), 3),
    "fed-bin-distributed": (fc.FedBin(bins=4), fc.DistributedDP(1.0), 3),
    "temperature-open": (fc.OneShotTemperature(points=5), fc.Open(), 3),
    "temperature-user": (fc.OneShotTemperature(points=5), fc.UserGaussian(1.0, 1e-5), 3),
    "acc-t-laplace": (fc.AccT(search=fc.search.Bisection(2)), fc.SourceLaplace(1.0), 3),
    "platt-local": (fc.PlattScaling(cells=4), fc.LocalDP(4.0), 2),
    "metrics-distributed": (fc.FederatedMetrics(bins=3), fc.DistributedDP(1.0, 1e-5), 3),
}


def told(name: str) -> dict[str, object]:
    """Run, and keep the questions word for word and the answers as numbers."""
    method, privacy, classes = RUNS[name]
    result = fc.run(method, fc.InProcess(federation(classes, records=60)), privacy, randomness=fc.Simulated(11))
    lines = result.transcript.lines
    asked = [{key: line[key] for key in ("query", "mechanism")} for line in lines if line["state"] == "asked"]
    answered = [wire.decode(line["value"]).tolist() for line in lines if line["state"] == "answered"]
    header = {key: lines[0][key] for key in ("method", "privacy", "participation", "classes", "clients")}
    return {"header": header, "asked": asked, "answered": answered, "artifact": numbers(result.artifact).tolist()}


@pytest.mark.parametrize("name", RUNS)
def test_transcripts_are_golden(name: str) -> None:
    golden, now = json.loads((HERE / f"{name}.json").read_text()), told(name)
    assert now["header"] == golden["header"]
    assert [line["query"] for line in now["asked"]] == [line["query"] for line in golden["asked"]]
    for ours, theirs in zip(now["answered"], golden["answered"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(now["artifact"], golden["artifact"], rtol=1e-7, atol=1e-9)


if __name__ == "__main__":
    for each in RUNS:
        (HERE / f"{each}.json").write_text(json.dumps(told(each), indent=1, sort_keys=True) + "\n")
