"""An adversarial client, as large as a client can be, is hidden as well as promised, and nearly no better."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import final

import pytest
from benchmarks.maddock.audit import EPSILON, HERE, METHODS, RUNS, audited, audited_runs, clients, loudest, with_section

import fedcalib as fc
from fedcalib.audit.runs import audit_run
from fedcalib.privacy.model import Mechanism, Spending


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
class Careless(fc.Privacy):
    """Promises less than it spends."""

    promised: fc.UserGaussian
    spent: fc.UserGaussian

    @property
    def private(self) -> bool:
        return True

    def mechanism(
        self, query: fc.Query, plan: fc.Plan, cohort: fc.Cohort, participation: fc.Participation
    ) -> Mechanism:
        return self.spent.mechanism(query, plan, cohort, participation)

    def spending(self, plan: fc.Plan, cohort: fc.Cohort, participation: fc.Participation) -> Spending:
        return self.promised.spending(plan, cohort, participation)


@pytest.mark.parametrize("name", ["FedBBQ", "FedTemp", "ResidualBinning"])
def test_whole_runs_with_too_little_noise_are_noticed(name: str) -> None:
    method, promised = RUNS[name]
    careless = Careless(promised, fc.UserGaussian(30 * EPSILON, promised.delta, clip=promised.clip))
    present, absent = clients(loudest()), clients(fc.Records.empty(3))
    audit = audit_run(method, present, absent, careless, runs=150, randomness=fc.Simulated(3))
    assert not audit.passes


def test_what_is_committed_audits_twenty_thousand_whole_runs() -> None:
    lines = {
        (line["what"], line["method"]): line for line in csv.DictReader((HERE / "audit.csv").read_text().splitlines())
    }
    for name in ("FedBBQ", "FedTemp", "ResidualBinning"):
        line = lines["runs", name]
        assert int(line["draws"]) >= 20_000
        assert 0.2 < float(line["epsilon_at_least"]) <= float(line["epsilon_claimed"])
    page = (HERE / "README.md").read_text()
    assert with_section(page, list(lines.values())) == page
