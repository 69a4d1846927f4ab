"""How much sites differ beyond sampling and noise: a random-effects summary of their figures.

The mean over sites and the variance between them are those of DerSimonian and Laird (1986), I-squared is that of
Higgins and Thompson (2002): the part of the variance of the sites' figures that is not sampling or noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any, Final, final

import numpy as np

from fedcalib.artifacts.performance import Performance
from fedcalib.metrics.intervals import Measured, normal_quantile
from fedcalib.metrics.table import (
    ACCURACY,
    AUC,
    BRIER,
    CALIBRATION_IN_THE_LARGE,
    NLL,
    OBSERVED_EXPECTED,
    PREVALENCE,
    SLOPE,
)
from fedcalib.workflows import documents

# the metrics whose estimates are close to normal, so that their intervals tell their variance
_METRICS: Final = (AUC, ACCURACY, BRIER, NLL, CALIBRATION_IN_THE_LARGE, SLOPE, OBSERVED_EXPECTED, PREVALENCE)
_FEWEST: Final = 3
_LARGEST: Final = 1e9  # a ratio to almost nothing is no figure to average, and its square overflows
_Z: Final = normal_quantile(0.95)


@final
@dataclass(frozen=True)
class Spread:
    """A metric over sites.

    Parameters
    ----------
    mean
        The mean over sites, with the interval of a random-effects model.
    i_squared
        The part of the variance of the sites' figures that is not sampling or noise, from 0 to 1.
    deviation
        Standard deviation between sites.
    sites
        Number of sites.

    Examples
    --------
    >>> from fedcalib.metrics.intervals import Measured
    >>> from fedcalib.workflows.site_spread import Spread
    >>> found = Spread.of([Measured(0.7, 0.68, 0.72), Measured(0.8, 0.78, 0.82), Measured(0.9, 0.88, 0.92)])
    >>> round(found.mean.value, 2), round(found.i_squared, 2)
    (0.8, 0.99)
    """

    mean: Measured
    i_squared: float
    deviation: float
    sites: int

    @classmethod
    def of(cls, figures: Sequence[Measured]) -> Spread:
        """The spread of figures with their intervals."""
        value = np.array([one.value for one in figures])
        variance = np.maximum(np.array([(one.high - one.low) / (2 * _Z) for one in figures]) ** 2, 1e-18)
        weight = 1 / variance
        fixed = float(weight @ value / weight.sum())
        excess = float(weight @ (value - fixed) ** 2)  # Cochran's Q
        freedom = len(value) - 1
        scale = float(weight.sum() - (weight**2).sum() / weight.sum())
        between = max(excess - freedom, 0.0) / scale
        weight = 1 / (variance + between)
        mean, half = float(weight @ value / weight.sum()), _Z / sqrt(float(weight.sum()))
        i_squared = max(excess - freedom, 0.0) / excess if excess > 0 else 0.0
        return cls(Measured(mean, mean - half, mean + half), i_squared, sqrt(between), len(value))

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "mean": self.mean.to_json(),
            "i_squared": self.i_squared,
            "deviation": self.deviation,
            "sites": self.sites,
        }


def spread(sites: Sequence[Any]) -> dict[str, Spread]:
    """The spread of each metric that at least three sites have."""
    found = {
        metric.name: [one for one in by_site(sites, metric.name).values() if max(-one.low, one.high) < _LARGEST]
        for metric in _METRICS
    }
    return {name: Spread.of(figures) for name, figures in found.items() if len(figures) >= _FEWEST}


def by_site(sites: Sequence[Any], name: str) -> dict[str, Measured]:
    """A metric of each site that has it."""
    known = {site.site: site.metrics for site in sites if isinstance(site.metrics, Performance)}
    figures = {site: found.measures().get(name) for site, found in known.items()}
    return {site: one for site, one in figures.items() if one is not None and isfinite(one.high - one.low)}


def table(spreads: Mapping[str, Mapping[str, Any]] | None) -> list[documents.TextTable]:
    """The spread between sites for people."""
    rows = tuple(
        (name, documents.said(one["mean"]), f"{100 * one['i_squared']:.0f}%", f"{one['deviation']:.4f}")
        for name, one in (spreads or {}).items()
    )
    columns = ("metric", "mean over sites", "I-squared", "standard deviation between sites")
    return [documents.TextTable("Between sites", columns, rows)] if rows else []
