"""An adversarial client, as large as a client can be, is hidden as well as promised, and nearly no better."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import final

import numpy as np
import pytest
from benchmarks.maddock.audit import (
    DELTA,
    EPSILON,
    HERE,
    METHODS,
    PIPELINE,
    RUNS,
    audited,
    audited_runs,
    with_section,
)

import fedcalib as fc
from fedcalib.accounting.events import SampledGaussian
from fedcalib.accounting.spending import Spending
from fedcalib.audit.runs import audit_run
from fedcalib.loop import Agreement
from fedcalib.method import drive
from fedcalib.privacy import Mechanism
from fedcalib.privacy.user_gaussian import ClippedGaussian


@pytest.mark.parametrize("name", METHODS)
def test_the_claim_stands_and_is_used(name: str) -> None:
    audit = audited(name, 20_000)
    assert audit.passes
    assert audit.lower_epsilon > 0.2 * EPSILON  # the client is visible: the noise is no larger than it has to be


@pytest.mark.parametrize("name", RUNS)
def test_whole_runs_tell_no_more(name: str) -> None:
    audit = audited_runs(name, 50)
    assert audit.passes
    assert audit.claimed == EPSILON


@final
@dataclass(frozen=True)
class Careless(fc.privacy.Privacy):
    """Promises less than it spends."""

    promised: fc.UserGaussian
    spent: fc.UserGaussian

    @property
    def budget(self) -> fc.method.Budget:
        return self.promised.budget

    @property
    def private(self) -> bool:
        return True

    def mechanism(
        self,
        query: fc.query.Query,
        plan: fc.method.Plan,
        cohort: fc.cohort.Cohort,
        participation: fc.cohort.Participation,
    ) -> Mechanism:
        return self.spent.mechanism(query, plan, cohort, participation)

    def spending(
        self, plan: fc.method.Plan, cohort: fc.cohort.Cohort, participation: fc.cohort.Participation
    ) -> Spending:
        return self.promised.spending(plan, cohort, participation)


@pytest.mark.parametrize("name", ["FedBBQ", "FedTemp", "ResidualBinning"])
def test_whole_runs_with_too_little_noise_are_noticed(name: str) -> None:
    assert not careless_runs(name, 150).passes


@pytest.mark.parametrize("name", ["FedBBQ, 12 rounds, 10% drawn", "FedBBQ, three disjoint cohorts"])
def test_whole_runs_of_drawn_clients_with_too_little_noise_are_noticed(name: str) -> None:
    assert not careless_runs(name, 150).passes


def careless_runs(name: str, runs: int) -> fc.audit.Audit:
    setting = RUNS[name]
    careless = Careless(setting.privacy, fc.UserGaussian(30 * EPSILON, DELTA, clip=setting.clip))
    return audit_run(
        setting.method,
        *setting.sides(),
        careless,
        participation=setting.drawn,
        runs=runs,
        randomness=fc.Simulated(3),
    )


@pytest.mark.parametrize("name", RUNS)
def test_the_adversary_is_as_large_as_a_client_can_be(name: str) -> None:
    """No client could be easier to tell: it uses up all the room that the noise was made for."""
    setting = RUNS[name]
    present, absent = setting.sides()
    agreed = Agreement.of(setting.method, setting.privacy, setting.drawn, present.schema)
    shown = []

    def ask(step: int, query: fc.query.Query) -> fc.query.Answer:
        mechanism = agreed.mechanisms[step]
        assert isinstance(mechanism, ClippedGaussian)
        sums = [mechanism.exact(query, side, fc.Simulated(0)) for side in (present, absent)]
        widths = query.spread({block: mechanism.sigmas[block] / mechanism.scales[block] for block in query.blocks})
        event = mechanism.event(query, agreed.cohort)
        assert isinstance(event, SampledGaussian)
        shown.append(float(np.square((sums[0] - sums[1]) / widths).sum()) * event.multiplier**2)
        return fc.query.Answer.of(query, sums[0], np.square(widths), len(present))

    drive(setting.method, present.schema, ask)
    assert min(shown) > (0.9 if setting.method == PIPELINE else 0.999)


def test_what_is_committed_audits_twenty_thousand_whole_runs() -> None:
    lines = {
        (line["what"], line["method"]): line for line in csv.DictReader((HERE / "audit.csv").read_text().splitlines())
    }
    for name in RUNS:
        line = lines["runs", name]
        assert int(line["draws"]) >= 20_000
        assert 0.2 < float(line["epsilon_at_least"]) <= float(line["epsilon_claimed"])
    page = (HERE / "annex.md").read_text()
    assert with_section(page, list(lines.values())) == page
