"""AccT: the temperature at which mean confidence equals accuracy.

NLLT: the temperature with the smallest log loss, each record's loss cut at a public bound.

ECET: the temperature with the smallest expected calibration error.

SourceBinning: histogram binning of the top label's confidence, from right and wrong counts.

DomainTemperatures: a temperature a domain, drawn to the common one as far as little is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from typing import final

import numpy as np

from fedcalib.artifacts.scaling import Temperature, TemperatureByDomain
from fedcalib.artifacts.steps import TopLabelSteps
from fedcalib.errors import InputError
from fedcalib.estimation.roots import linear_root
from fedcalib.method import Flow, Method
from fedcalib.queries.shift import BinnedGaps, ClippedLosses, ConfidenceGaps, RightWrong, gaps_of
from fedcalib.query import Block, RecordQuery, Rows
from fedcalib.records import Records, Schema
from fedcalib.search import GoldenSection, Interpolation, MinimumSearch, RootSearch, SearchResult
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class AccT(Method[Temperature]):
    """Recalibrate after a domain shift from one number a look: correct answers minus confidence, summed over sources.

    That number rises with the temperature, so its sign says on which side the answer lies. `search` decides where to
    look; looks in one message share one budget, so asking for the whole curve at once withstands noise best. Where no
    temperature of the bracket does (all answers right, all wrong, accuracy below that of a guess), the answer is the
    nearer end of the bracket with a warning.
    """

    search: RootSearch = Interpolation()
    low: float = 0.5
    high: float = 16.0

    def __post_init__(self) -> None:
        check_bracket(self.low, self.high)

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        """Search for the crossing."""

        def probe(temperatures: tuple[float, ...]) -> Flow[Floats]:
            answer = yield ConfidenceGaps(temperatures)
            return gaps_of(answer["curve"])

        return tempered((yield from self.search.root(probe, self.low, self.high)), self.low, self.high)


def check_bracket(low: float, high: float) -> None:
    """Refuse a bracket that is none."""
    if not 0 < low < high < 1e6:
        raise InputError(f"Expected temperatures 0 < low < high, found {low} and {high}.")


def tempered(found: SearchResult, low: float, high: float) -> Temperature:
    """Make a calibrator of what a search found; an end of the bracket that it never left carries a warning."""
    temperature = found.within(low, high)
    warning = f"The search ended at an end of its bracket, {temperature:g}; the right temperature may lie beyond."
    return Temperature(temperature, warning if found.at_end else "")


@final
@dataclass(frozen=True)
class NLLT(Method[Temperature]):
    """Recalibrate after a domain shift by minimising the summed log loss, cut at ln(classes) + `margin` a record."""

    search: MinimumSearch = GoldenSection()
    low: float = 0.5
    high: float = 3.0
    margin: float = 5.0

    def __post_init__(self) -> None:
        check_bracket(self.low, self.high)
        if not 0 < self.margin < 100:
            raise InputError(f"Expected a margin above 0, found {self.margin}.")

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        """Search for the minimum."""
        worst = log(schema.classes) + self.margin

        def probe(temperatures: tuple[float, ...]) -> Flow[Floats]:
            answer = yield ClippedLosses(temperatures, worst)
            return answer["loss"]

        return tempered((yield from self.search.minimum(probe, self.low, self.high)), self.low, self.high)


@final
@dataclass(frozen=True)
class ECET(Method[Temperature]):
    """Recalibrate after a domain shift by minimising the summed gaps of all bins.

    The error has several valleys, and noise adds a floor to every bin: kept because it was published.
    """

    search: MinimumSearch = GoldenSection()
    low: float = 0.5
    high: float = 3.0
    bins: int = 15

    def __post_init__(self) -> None:
        check_bracket(self.low, self.high)
        if self.bins < 1:
            raise InputError(f"Expected at least one bin, found {self.bins}.")

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        """Search for the minimum."""

        def probe(temperatures: tuple[float, ...]) -> Flow[Floats]:
            answer = yield BinnedGaps(temperatures, self.bins)
            return np.asarray(np.abs(answer["gap"]).sum(axis=1))

        return tempered((yield from self.search.minimum(probe, self.low, self.high)), self.low, self.high)


@final
@dataclass(frozen=True)
class SourceBinning(Method[TopLabelSteps]):
    """Replace the top probability by the share of right answers in its bin; the top class stays the same.

    `smoothing` pseudo-records with the bin's midpoint keep empty bins near the identity.
    """

    bins: int = 15
    smoothing: float = 2.0

    def __post_init__(self) -> None:
        if self.bins < 1 or not self.smoothing > 0:
            raise InputError(f"Expected bins and smoothing above 0, found {self.bins} and {self.smoothing}.")

    def protocol(self, schema: Schema) -> Flow[TopLabelSteps]:
        """Ask once and take one ratio a bin."""
        answer = yield RightWrong(self.bins)
        right, wrong = np.maximum(answer["counts"], 0.0)
        middle = np.maximum((np.arange(self.bins) + 0.5) / self.bins, 1 / schema.classes)
        share = (right + self.smoothing * middle) / (right + wrong + self.smoothing)
        steps = np.clip(share, 1 / schema.classes, 1.0)
        return TopLabelSteps(schema.classes, tuple(steps.tolist()))


@final
@dataclass(frozen=True)
class DomainGaps(RecordQuery):
    """The curve of confidence gaps of each domain, and how many records it has.

    A record belongs to one domain, named by its number in the column `column`: it adds its curve, whose norms are at
    most 1 (see `ConfidenceGaps`), to one row of `curves`, and one to one cell of `records`.
    """

    temperatures: tuple[float, ...]
    domains: int
    column: str = "domain"

    def __post_init__(self) -> None:
        ConfidenceGaps(self.temperatures)
        if not 1 <= self.domains <= 1 << 16:
            raise InputError(f"Expected 1 to 2^16 domains, found {self.domains}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """A curve a domain, and a count a domain."""
        return {
            "curves": Block((self.domains, len(self.temperatures))),
            "records": Block((self.domains,), integral=True, one_hot=True, weight=0.25),
        }

    def rows(self, records: Records) -> Rows:
        """Touch one domain's row and count; a domain out of range touches nothing."""
        domain = self._domains(records)
        known = (domain >= 0) & (domain < self.domains)
        width = len(self.temperatures)
        cells = np.concatenate(
            [domain[:, None] * width + np.arange(width), self.domains * width + domain[:, None]], axis=1
        )
        curves = np.asarray(ConfidenceGaps(self.temperatures).rows(records).values)
        return Rows(np.where(known[:, None], cells, -1), np.concatenate([curves, np.ones((len(domain), 1))], axis=1))

    def _domains(self, records: Records) -> Floats:
        if not len(records):
            return np.zeros(0, dtype=np.int64)
        if self.column not in records.extra:
            raise InputError(f"Expected a column '{self.column}' of domain numbers, found {sorted(records.extra)}.")
        return np.asarray(records.extra[self.column]).astype(np.int64)


@final
@dataclass(frozen=True)
class DomainTemperatures(Method[TemperatureByDomain]):
    """Find the temperature of each domain where mean confidence equals accuracy, from one message.

    Domains are numbered from 0 in a column of the records. A domain's own ln T is averaged with the common one by how
    sure it is against how much domains differ, so that a domain with few records borrows from the others.
    """

    domains: int
    column: str = "domain"
    places: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    low: float = 0.5
    high: float = 16.0

    def __post_init__(self) -> None:
        check_bracket(self.low, self.high)
        DomainGaps(self.places, self.domains, self.column)
        if len(self.places) < 2:
            raise InputError("Expected at least two places, found one.")

    def protocol(self, schema: Schema) -> Flow[TemperatureByDomain]:
        """Ask once, cross zero in every domain, and shrink."""
        answer = yield DomainGaps(self.places, self.domains, self.column)
        curves, records = answer["curves"], np.maximum(answer["records"], 0.0)
        noise = float(answer.variance("curves").max(initial=0.0)) * len(self.places)
        overall = self._crossing(curves.sum(axis=0))
        own = np.array([self._crossing(curve) for curve in curves])
        doubt = np.array([self._doubt(*pair, noise) for pair in zip(curves, records, strict=True)])
        shrunk = shrink(own, doubt, overall)
        return TemperatureByDomain(Temperature(exp(overall)), tuple(Temperature(exp(one)) for one in shrunk.tolist()))

    def _crossing(self, curve: Floats) -> float:
        return linear_root(np.log(np.array(self.places)), gaps_of(curve), log(self.low), log(self.high))

    def _doubt(self, curve: Floats, records: float, noise: float) -> float:
        """Give the variance of a domain's ln T: that of its gap, over the squared slope of its curve."""
        slope = 2 * float(np.maximum(curve[1:], 0.0).sum()) / log(self.places[-1] / self.places[0])
        widest = log(self.high / self.low) ** 2
        return min((records / 4 + noise) / slope**2, widest) if slope > 0 else widest


def shrink(own: Floats, doubt: Floats, overall: float) -> Floats:
    """Draw each value to the overall one by its doubt against how much values truly differ (DerSimonian and Laird)."""
    sure = 1 / np.maximum(doubt, 1e-12)
    mean = float((sure * own).sum() / sure.sum())
    surplus = float((sure * (own - mean) ** 2).sum()) - (len(own) - 1)
    scale = float(sure.sum() - (sure**2).sum() / sure.sum())
    apart = max(surplus / scale, 0.0) if scale > 0 else 0.0
    weight = apart / (apart + np.maximum(doubt, 1e-12))
    shrunk: Floats = weight * own + (1 - weight) * overall
    return shrunk
