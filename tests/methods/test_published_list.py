"""Every method of the five sources has its published settings, in one pattern; decision 21 lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib import methods, registry, wire
from fedcalib.training import SoftmaxRegression

NETWORK = SoftmaxRegression(4, 3)
PUBLISHED = [
    *(kind.as_published() for kind in (fc.FedBin, fc.FedBBQ, fc.FedTemp, fc.FedVector, fc.FedMatrix)),
    *(kind.as_published() for kind in (fc.FedOPVector, fc.FedCal, fc.AccT, methods.NLLT, methods.ECET)),
    *(kind.as_published() for kind in (methods.SourceBinning, methods.CCVR, fc.ScoreCurves, methods.Weighted)),
    methods.FLSWAG.as_published(NETWORK),
    methods.FedAvg.as_published(NETWORK),
]
PAGE = Path(__file__).parents[2] / "docs" / "decisions" / "0021-a-method-states-its-published-settings.md"


@pytest.mark.parametrize("method", PUBLISHED, ids=lambda method: type(method).__name__)
def test_published_settings_are_a_class_method_that_names_its_source(method: object) -> None:
    kind = type(method)
    assert (kind.as_published.__doc__ or "").strip()
    assert f"`{kind.__name__}" in PAGE.read_text(encoding="utf-8")
    assert sum(row.name == kind.__name__ for row in registry.ROWS) == 1
    if not isinstance(method, methods.FLSWAG | methods.FedAvg):  # these hold arrays, which have no plain equality
        assert wire.loads(wire.dumps(method)) == method


def test_defaults_are_not_the_published_settings() -> None:
    for method in PUBLISHED:
        if not isinstance(method, methods.ECET | methods.FLSWAG | methods.FedAvg):
            assert type(method)() != method, type(method).__name__
