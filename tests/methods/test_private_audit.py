"""An adversarial client, as large as a client can be, is hidden as well as promised, and nearly no better."""

from __future__ import annotations

import pytest
from benchmarks.maddock.audit import EPSILON, METHODS, audited, clients, loudest

import fedcalib as fc
from fedcalib.audit.runs import audit_run


@pytest.mark.parametrize("name", METHODS)
def test_the_claim_stands_and_is_used(name: str) -> None:
    audit = audited(name, 20_000)
    assert audit.passes
    assert audit.lower_epsilon > 0.2 * EPSILON  # the client is visible: the noise is no larger than it has to be


def test_whole_runs_tell_no_more() -> None:
    present, absent = clients(loudest()), clients(fc.Records.empty(3))
    privacy = fc.UserGaussian(EPSILON, 1e-5)
    method = fc.Pipeline((fc.OneShotTemperature(weight=0.2), fc.ResidualBinning(weight=0.8)))
    audit = audit_run(method, present, absent, privacy, runs=100, randomness=fc.Simulated(2))
    assert audit.passes
