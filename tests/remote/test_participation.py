"""Sampled and disjoint clients over messages: only those that take part are sent a query and counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import wire
from tests.contract.subjects import federation
from tests.remote.places import GENEROUS, Meddler, places

DATA = federation(2, clients=12, records=1200)


@pytest.mark.parametrize("participation", [fc.Poisson(0.7), fc.Disjoint(2)], ids=repr)
def test_only_those_who_were_drawn_are_asked(participation: fc.Poisson | fc.Disjoint) -> None:
    everybody = places(DATA)
    meddler = Meddler(everybody.transport(), lambda site, action, reply: reply)
    runtime = type(everybody.runtime())(meddler, everybody.directory)
    method = (
        fc.FedBin(rounds=2, weighting=fc.methods.Weighted()) if isinstance(participation, fc.Disjoint) else fc.FedBin()
    )
    result = fc.run(method, runtime, fc.SecAgg(), participation=participation)
    secret = result.transcript.secret(bytes)  # the one that was drawn from
    steps = len(result.plan.queries)
    drawn = [participation.members(12, step, secret) for step in range(steps)]
    asked = [site for site, action in meddler.received if action == "ask"]
    expected = [f"site-{k:02d}" for mask in drawn for k in np.flatnonzero(mask)]
    assert sorted(asked) == sorted(expected)
    first = next(line for line in result.transcript.lines if line["state"] == "answered")
    mechanism = fc.SecAgg().mechanism(result.plan.queries[0], result.plan, result.cohort, participation)
    total = mechanism.gather(result.plan.queries[0], DATA.subset(drawn[0]), fc.Secure())
    value, _ = mechanism.decode(result.plan.queries[0], total, int(drawn[0].sum()), fc.Secure())
    assert wire.decode(first["value"]).tolist() == value.tolist()
    assert first["clients"] == int(drawn[0].sum())


def test_nodes_with_many_clients_ask_only_the_drawn_ones() -> None:
    runtime = places(DATA, replace(GENEROUS, simulation=True), nodes=3).runtime()
    privacy = fc.UserGaussian(epsilon=1.0, delta=1e-5, clip=20.0)
    result = fc.run(fc.FedBin(), runtime, privacy, participation=fc.Poisson(0.9))
    assert result.privacy.epsilon == 1.0
