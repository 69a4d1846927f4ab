"""Averaged fits methods side by side, and mixes what they found in equal parts."""

from __future__ import annotations

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.errors import InputError
from tests.contract.subjects import federation


def test_it_is_the_mean_of_what_the_methods_find_alone() -> None:
    data = federation(4, records=2000)
    methods = (fc.OneShotTemperature(), fc.methods.Pipeline((fc.methods.ClassShifts(), fc.methods.ResidualBinning())))
    both = fc.run(fc.methods.Averaged(methods), fc.InProcess(data), fc.Open()).artifact
    alone = [fc.run(method, fc.InProcess(data), fc.Open()).artifact for method in methods]
    new = np.random.default_rng(0).normal(0, 3, (200, 4))
    np.testing.assert_allclose(both.from_logits(new), sum(one.from_logits(new) for one in alone) / 2, atol=1e-12)


def test_messages_are_as_many_as_the_longest_conversation() -> None:
    methods = (
        fc.methods.RidgeVector(rounds=5),
        fc.methods.Pipeline((fc.methods.ClassShifts(), fc.methods.ResidualBinning())),
    )
    plan = fc.method.Plan.of(fc.methods.Averaged(methods), fc.Schema(4, 10))
    assert len(plan.queries) == 5
    assert isinstance(plan.queries[1], fc.query.Join)


def test_nothing_cannot_be_averaged() -> None:
    with pytest.raises(InputError):
        fc.methods.Averaged(())
