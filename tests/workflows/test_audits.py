"""Whole workflows are audited on neighbouring frames, with everything that they write; broken twins are caught.

Noise is that of real releases, so nothing here is seeded. A bound holds with confidence 1 - 1e-6, and a twin differs by
far more than its noise, or by a fact, so that no outcome depends on chance. `benchmarks/workflow_audits` has the same
at full size, with twins that only lack noise.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.workflow_audits import cases
from benchmarks.workflow_audits.cases import Case

import fedcalib as fc
from fedcalib.audit import Audit, audit_outputs

CLAIMED = 0.25
RUNS = 50  # on each side: 30 give the bound, and can show an epsilon of up to 0.47
EVERYTHING = replace(cases.everything(), until=13)


def audited(case: Case, runs: int = RUNS) -> Audit:
    case = replace(case, privacy=fc.DistributedDP(CLAIMED))
    sides = ([case.document(frame) for _ in range(runs)] for frame in (case.pair.present, case.pair.absent))
    return audit_outputs(*sides, CLAIMED, confidence=1 - 1e-6, subject=case.name)


@pytest.mark.parametrize("workflow", ["evaluate", "calibrate", "monitor", "compare"])
def test_a_workflow_keeps_its_claim(workflow: str) -> None:
    audit = audited(Case(workflow, EVERYTHING))
    assert audit.passes, audit


@pytest.mark.parametrize(
    "case",
    [
        Case("evaluate", EVERYTHING, twin=cases.EXACT_COUNTS),
        Case("calibrate", cases.chosen_units(4800), twin=cases.UNITS_BY_POSITION),
        Case("monitor", EVERYTHING, twin=cases.WINDOWS_OF_RECORDS),
        Case("compare", cases.held_rows(9600), twin=cases.SPLIT_BY_POSITION),
    ],
    ids=lambda case: f"{case.workflow} with {case.twin.name}",
)
def test_a_broken_twin_is_caught(case: Case) -> None:
    audit = audited(case)  # what depends on the position of rows moves so many of them that no noise hides it
    assert not audit.passes, audit
