"""What is agreed before a run is what is sent: costs of dry runs are those of runs, and every run is planned once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.errors import FedcalibError
from fedcalib.loop import Agreement, Outline, Runtime, Step, Total
from fedcalib.method import Plan
from fedcalib.records import Schema
from fedcalib.workflows.calibration import Calibration
from fedcalib.workflows.session import Data, WorkflowSession
from tests.contract.subjects import METHODS, MODELS
from tests.snapshots import data

CLIPPED = [replace(model, clip=20.0) if isinstance(model, fc.UserGaussian) else model for model in MODELS]


class Weighing(Runtime):
    """Counts the numbers that the first client really sends."""

    def __init__(self, federation: fc.Federation) -> None:
        self.inner = fc.InProcess(federation)
        self.sent = 0

    @property
    def schema(self) -> Schema:
        return self.inner.schema

    def prepare(self, outline: Outline) -> None:
        self.inner.prepare(outline)

    def total(self, step: Step) -> Total:
        share = step.mechanism.encode(step.query, self.inner.federation.client(0), step.randomness)
        self.sent += 8 * np.asarray(share).size
        return self.inner.total(step)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("privacy", MODELS, ids=repr)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_the_agreed_bytes_are_what_a_client_sends(method: fc.Method, privacy: fc.privacy.Privacy, classes: int) -> None:
    runtime = Weighing(data.federation(classes))
    try:
        agreed: Agreement[Any] = Agreement.of(method, privacy, fc.Everyone(), runtime.schema)
    except FedcalibError:
        with pytest.raises(FedcalibError):
            fc.run(method, runtime, privacy)
        return
    try:
        result = fc.run(method, runtime, privacy, randomness=fc.Simulated(1))
    except FedcalibError:
        return  # refused by what the records hold, such as features that are missing
    assert agreed.bytes_per_client == result.bytes_per_client == runtime.sent
    assert 8 * sum(query["numbers"] for query in agreed.to_json()["queries"]) == runtime.sent


@pytest.mark.parametrize("privacy", MODELS, ids=repr)
@pytest.mark.parametrize("method", [fc.FedBin(), fc.QuantileBinning(), fc.PlattScaling()], ids=repr)
def test_a_dry_run_costs_nothing_and_tells_what_the_run_costs(
    tmp_path: Path, method: fc.Method, privacy: fc.privacy.Privacy
) -> None:
    ledger = tmp_path / "ledger.db"
    session = WorkflowSession(1, tmp_path / "state", ledger)
    told = Calibration(Data.of(data.federation(2)), method, privacy, session=session)
    try:
        planned = told.dry_run()
    except FedcalibError:
        with pytest.raises(FedcalibError):
            told.run()
        return
    assert not list(tmp_path.iterdir()), "a dry run asks nobody, pays nothing and leaves nothing"
    done = told.run()
    assert [phase.cost() for phase in planned.phases] == [phase.cost() for phase in done.phases]
    assert planned.privacy.epsilon == done.privacy.epsilon


@pytest.mark.parametrize("privacy", CLIPPED, ids=repr)
def test_every_conversation_is_planned_once(privacy: fc.privacy.Privacy, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[fc.Method] = []
    plan = Plan.of

    def counted(method: fc.Method, schema: Schema) -> Plan:
        planned.append(method)
        return plan(method, schema)

    monkeypatch.setattr(Plan, "of", counted)
    done = Calibration(Data.of(data.federation(2)), fc.FedBin(), privacy, session=WorkflowSession(1)).run()
    # the measurement is planned before the fit, so that refusals come first, and again for the fitted calibrator;
    # where nothing is hidden, each site is measured too: one conversation, planned for all sites
    assert len(planned) == len(done.phases) + 1 + 2 * bool(done.sites)
