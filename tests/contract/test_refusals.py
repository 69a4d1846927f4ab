"""Every reason why a method does not run under a model is a line of the page of refusals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib.errors import InputError, PlanError, RefusedError
from tests.contract.subjects import METHODS, MODELS, SCHEMAS, name

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "refusals.md"
SOURCES = Path(fc.__file__).parent
LISTED = [match[1] for match in re.finditer(r"^\| `([^`]+)`", PAGE.read_text(), re.M)]


@pytest.mark.parametrize("privacy", MODELS, ids=name)
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_a_reason_is_listed(method: fc.Method, privacy: fc.privacy.Privacy) -> None:
    drawn = fc.Everyone()
    for schema in SCHEMAS:
        try:
            plan = fc.method.Plan.of(method, schema)
            for query in plan.queries:
                privacy.mechanism(query, plan, drawn.cohort(schema.clients), drawn)
            privacy.spending(plan, drawn.cohort(schema.clients), drawn)
        except (RefusedError, InputError, PlanError) as refusal:
            assert any(str(refusal).startswith(reason) for reason in LISTED), str(refusal)


def test_every_refusal_in_the_source_is_listed() -> None:
    for file in sorted(SOURCES.rglob("*.py")):
        for match in re.finditer(r"raise RefusedError\(\s*f?\"([^\"]+)\"", file.read_text()):
            words = [part for part in re.split(r"\{[^}]*\}", match[1]) if len(part) > 8]
            assert any(part.strip(" .").startswith(reason) or reason in part for part in words for reason in LISTED), (
                f"{file.name}: {match[1]}"
            )


def test_every_listed_reason_is_in_the_source() -> None:
    everything = "\n".join(file.read_text() for file in SOURCES.rglob("*.py"))
    for reason in LISTED:
        assert reason in everything, reason
