"""Bounds on every number of a privacy model: nothing saturates, overflows or fills the memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.accounting import distributed_gaussian_rho
from fedcalib.cohort import Cohort
from fedcalib.errors import InputError
from fedcalib.privacy.distributed import GaussianShares, PolyaShares
from fedcalib.privacy.secagg import FixedPoint
from fedcalib.privacy.source_laplace import LaplaceTerms
from fedcalib.privacy.user_gaussian import ClippedGaussian
from fedcalib.randomness import MAX_NOISE, Randomness

JUST_BELOW = float(np.nextafter(MAX_NOISE, 0))
SOURCES = [fc.Secure(), fc.Simulated(1)]
SAMPLERS: dict[str, Callable[[Randomness, float], np.ndarray]] = {
    "Laplace": lambda source, scale: source.discrete_laplace(scale, 200),
    "Gaussian": lambda source, scale: source.discrete_gaussian(scale, 200),
    "a share": lambda source, scale: source.polya(1 / 3, scale, 200),
    "several shares": lambda source, scale: source.polya(2.5, scale, 200),
}


@pytest.mark.parametrize("source", SOURCES, ids=repr)
@pytest.mark.parametrize("law", SAMPLERS)
def test_p5_noise_is_never_constant(law: str, source: Randomness) -> None:
    """Finding p5: with a sigma of 2^80 the sampler saturated, its noise was a constant, and the price was zero."""
    widest = SAMPLERS[law](source, JUST_BELOW)
    assert np.unique(widest).size > 190
    assert 0.2 * MAX_NOISE < np.std(widest.astype(float)) < 5 * MAX_NOISE
    for scale in (2.0**50, 2.0**75, 2.0**80, 1e300):
        with pytest.raises(InputError, match=r"below 2\^50 grid steps.*Raise epsilon"):
            SAMPLERS[law](source, scale)


MECHANISMS: dict[str, Callable[[float], object]] = {
    "PolyaShares": lambda width: PolyaShares({"a": 1.0}, {"a": width}, 3),
    "GaussianShares": lambda width: GaussianShares({"a": 2.0**20}, {"a": width}, 3),
    "LaplaceTerms": lambda width: LaplaceTerms({"a": 1.0}, {"a": width}),
    "ClippedGaussian": lambda width: ClippedGaussian({"a": 1.0}, {"a": 1.0}, {"a": width}),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_p5_mechanisms_refuse_noise_that_cannot_be_drawn(name: str) -> None:
    MECHANISMS[name](JUST_BELOW)
    for width in (2.0**50, 2.0**80, float("inf"), float("nan"), 0.0, -1.0):
        with pytest.raises(InputError, match="block 'a'"):
            MECHANISMS[name](width)


@pytest.mark.parametrize("scale", [0.0, -1.0, 2.0**63, float("nan"), float("inf")])
def test_scales_and_clips_stay_within_the_ring(scale: float) -> None:
    for make in (
        lambda: FixedPoint({"a": scale}),
        lambda: PolyaShares({"a": scale}, {"a": 1.0}, 3),
        lambda: LaplaceTerms({"a": scale}, {"a": 1.0}),
        lambda: ClippedGaussian({"a": scale}, {"a": 1.0}, {"a": 1.0}),
        lambda: fc.UserGaussian(1.0, 1e-5, clip=scale),
    ):
        with pytest.raises(InputError, match=r"2\^62"):
            make()


def test_settings_that_are_not_by_block_are_refused() -> None:
    """What a hostile message may hold; an untyped error would reach the site's log as a fault of ours."""
    for make in (
        lambda: FixedPoint((1.0,)),  # type: ignore[arg-type]
        lambda: PolyaShares({"a": 1.0}, (1.0,), 3),  # type: ignore[arg-type]
        lambda: LaplaceTerms(None, {"a": 1.0}),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError, match="one number per block"):
            make()


@pytest.mark.parametrize("floor", [0, -1, 1 << 33])
def test_p8_a_floor_that_would_fill_the_memory_is_refused(floor: int) -> None:
    for make in (
        lambda: PolyaShares({"a": 1.0}, {"a": 1.0}, floor),
        lambda: GaussianShares({"a": 1.0}, {"a": 4.0}, floor),
        lambda: Cohort(10, 1.0, floor),
    ):
        with pytest.raises(InputError, match=r"2\^30"):
            make()


def test_a_billion_shares_are_accounted_in_little_memory() -> None:
    few = distributed_gaussian_rho(1.0, 1.0, 4.0, 1 << 20, 10)
    assert distributed_gaussian_rho(1.0, 1.0, 4.0, 1 << 30, 10) == pytest.approx(few / 1024)
    narrow = [distributed_gaussian_rho(1.0, 1.0, 0.5, shares, 1) for shares in (1 << 20, (1 << 20) + 1, 1 << 21)]
    assert narrow[0] <= narrow[1] * (1 + 1e-5) and all(np.isfinite(narrow))


MODELS: dict[str, Callable[[float], object]] = {
    "DistributedDP": fc.DistributedDP,
    "SourceLaplace": fc.SourceLaplace,
    "LocalDP": fc.LocalDP,
    "UserGaussian": lambda epsilon: fc.UserGaussian(epsilon, 1e-5),
}


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 1e7, float("inf"), float("nan")])
@pytest.mark.parametrize("model", MODELS)
def test_epsilon_has_a_range(model: str, epsilon: float) -> None:
    with pytest.raises(InputError, match=r"Expected epsilon above 0.*is usual"):
        MODELS[model](epsilon)


@pytest.mark.parametrize("delta", [-1e-5, 0.2, 1.0, 1e-200, float("nan")])
def test_delta_has_a_range(delta: float) -> None:
    for make in (lambda: fc.DistributedDP(1.0, delta), lambda: fc.UserGaussian(1.0, delta)):
        with pytest.raises(InputError, match=r"Expected delta above 0.*is usual"):
            make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: fc.Poisson(0.0),
        lambda: fc.Poisson(1.5),
        lambda: fc.Poisson(1e-12),
        lambda: fc.Poisson(float("nan")),
        lambda: fc.Poisson(0.5, dropout=1.0),
        lambda: fc.Everyone(dropout=-0.1),
        lambda: fc.Everyone(dropout=float("nan")),
        lambda: fc.Disjoint(0),
        lambda: fc.Disjoint(1 << 40),
        lambda: Cohort(float("inf")),
        lambda: Cohort(-1),
        lambda: Cohort(10, rate=0.0),
        lambda: fc.SecAgg(bits=41),
    ],
)
def test_participation_and_cohorts_have_ranges(make: Callable[[], object]) -> None:
    with pytest.raises(InputError, match="Expected"):
        make()


def test_a_budget_that_no_noise_meets_is_refused() -> None:
    """The accounting of samples has orders up to 2048, so it cannot show an epsilon far below ln(1/delta)/2000."""
    plan, drawn = fc.method.Plan.of(fc.FedBin(clip=5.0), fc.Schema(2, 1000)), fc.Poisson(0.1)
    with pytest.raises(InputError, match="Raise epsilon or delta"):
        fc.UserGaussian(1e-4, 1e-6).mechanism(plan.queries[0], plan, drawn.cohort(1000), drawn)
