"""A mechanism comes from the server, so a client must not be talked into one that costs more than it says."""

from __future__ import annotations

import pytest
from tests.privacy.small_queries import served

import fedcalib as fc
from fedcalib import wire
from fedcalib.errors import InputError
from fedcalib.privacy.distributed import GaussianShares, PolyaShares
from fedcalib.privacy.local import Coder, RandomisedReports
from fedcalib.privacy.local_reports import Cell, Coordinate, FlippedSign, RandomSymbol, SignedCell, Unary
from fedcalib.privacy.source_laplace import LaplaceTerms
from fedcalib.privacy.user_gaussian import ClippedGaussian
from fedcalib.queries.reliability import TopLabelTable

HONEST = [
    fc.DistributedDP(1.0),
    fc.DistributedDP(1.0, 1e-5),
    fc.LocalDP(1.0),
    fc.UserGaussian(1.0, 1e-5, clip=1.0),
    fc.SourceLaplace(1.0),
]


@pytest.mark.parametrize("model", HONEST, ids=repr)
def test_an_honest_mechanism_survives_the_wire_with_its_cost(model):
    query = TopLabelTable(3)
    mechanism = served(model, query)
    again = wire.loads(wire.dumps(mechanism))
    assert again == mechanism
    cohort = fc.cohort.Cohort(10, 1.0, 10)
    assert again.event(query, cohort) == mechanism.event(query, cohort)


@pytest.mark.parametrize("wrong", [-1e6, 0.0, float("nan"), float("inf")])
@pytest.mark.parametrize("cls", [PolyaShares, GaussianShares, LaplaceTerms, ClippedGaussian])
def test_no_block_can_have_a_negative_cost(cls, wrong):
    rest = {PolyaShares: (3,), GaussianShares: (3,), LaplaceTerms: (), ClippedGaussian: ({"a": 1.0, "b": 1.0},)}[cls]
    fine = {"a": 1.0, "b": 1.0}
    for settings in ((fine, {"a": 1.0, "b": wrong}), ({"a": 1.0, "b": wrong}, fine)):
        with pytest.raises(InputError, match="above 0"):
            cls(*settings, *rest)


@pytest.mark.parametrize("symbols", [Cell(4), SignedCell(4, 1.0)])
def test_a_flipped_sign_cannot_carry_a_cell_of_the_record(symbols):
    with pytest.raises(InputError, match="flipped signs for coordinates"):
        Coder(symbols, FlippedSign(1.0))
    with pytest.raises(InputError, match="flipped signs for coordinates"):
        Coder(Coordinate(4, 1.0), Unary(1.0))


@pytest.mark.parametrize("epsilon", [-5.0, 0.0, float("nan"), 1e4])
def test_no_report_can_have_a_negative_cost(epsilon):
    with pytest.raises(InputError, match="epsilon above 0"):
        Coder(Cell(4), RandomSymbol(epsilon))


def test_reports_need_coders():
    with pytest.raises(InputError, match="one coder per block"):
        RandomisedReports({"a": 3.0})
