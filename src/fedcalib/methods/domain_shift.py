"""Recalibration after a domain shift: one temperature, or one per domain, from labelled source clients.

`AccT` finds the temperature at which mean confidence equals accuracy, `NLLT` the one with the smallest log loss, `ECET`
the one with the smallest expected calibration error; each takes a search of `fedcalib.search`. `SourceBinning` bins the
top label's confidence. `DomainTemperatures` estimates a temperature per domain and shrinks it toward the common one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp, log, sqrt
from typing import Final, final

import numpy as np

from fedcalib.artifacts.scaling import Temperature, TemperatureByDomain
from fedcalib.artifacts.steps import TopLabelSteps
from fedcalib.errors import InputError
from fedcalib.estimation.confidence_curves import ConfidenceCurves
from fedcalib.estimation.evidence import normal_p_value, share_of_identity
from fedcalib.estimation.roots import linear_root
from fedcalib.method import Budget, Flow, Method
from fedcalib.methods.temperature import NOT_SIGNIFICANT
from fedcalib.metrics.binning import small_cells
from fedcalib.queries.shift import BinnedGaps, ClippedLosses, ConfidenceGaps, RightWrong, gaps_of
from fedcalib.query import Block, RecordQuery, Rows, Unit
from fedcalib.records import Records, Schema
from fedcalib.search import GoldenSection, Interpolation, MinimumSearch, OnMagnitude, RootSearch, SearchResult
from fedcalib.types import Floats
from fedcalib.wire import ADDED

CHANCE: Final = 0.15  # variance of right answers over the range of confidence between the ends of the bracket
FALSE_MOVES: Final = (
    0.05  # the most often that a calibrated classifier may be changed: after a shift few are calibrated
)
NOISY_PLACES: Final = (0.7, 1.7, 5.0)  # temperatures that are probed where the noise of sources adds up
_BEYOND: Final = "An end of the bracket is the most likely temperature; the right one may lie beyond."
_MAX_SUM: Final = 1e12  # beyond any sum of gaps; keeps squares finite whatever the noise
_PRECISE: Final = 200.0  # epsilon x root of the number of sources from which on a curve needs no shape


@final
@dataclass(frozen=True)
class AccT(Method[Temperature]):
    """Temperature at which mean confidence equals accuracy, from sums over source clients.

    Correct answers minus confidence, summed over records, increase with the temperature, so their sign shows on which
    side the temperature lies. Points in one message share one budget, so probing the whole curve at once withstands
    noise best. Where no temperature of the bracket fits (all answers right, all wrong, accuracy below that of a guess),
    the result is the nearer end of the bracket with a warning.

    Under noise the temperature moves away from 1 only as far as the evidence allows: a calibrated classifier is changed
    in at most 3 of 100 runs. Where every source or record adds noise of its own, three temperatures are probed in
    place of the search, and the crossing is that of the usual shape of confidence, with the noise in the likelihood.

    Parameters
    ----------
    search
        How the crossing is found.
    low, high
        The bracket of temperatures.
    epsilon, alone
        What the run may spend, and who adds noise of its own, "record" or "client"; filled in by the run. They matter
        with the default search only.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(temperature=2.0, records=20_000)
    >>> round(fc.run(fc.AccT(), fc.InProcess(federation), fc.SecAgg()).artifact.temperature, 1)
    2.0
    """

    search: RootSearch = Interpolation()
    low: float = 0.5
    high: float = 16.0
    epsilon: float | None = field(default=None, metadata=ADDED)
    alone: Unit | None = field(default=None, metadata=ADDED)

    def __post_init__(self) -> None:
        check_bracket(self.low, self.high)

    def with_budget(self, budget: Budget) -> AccT:
        """Take from the run's budget that noise adds up; a search that somebody chose does not ask for it."""
        if self.search != Interpolation() or budget.alone is None:
            return self
        return replace(self, epsilon=self.epsilon or budget.epsilon, alone=self.alone or budget.alone)

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        noisy = self.epsilon is not None and self.alone is not None and is_noisy(schema.clients, self.epsilon)
        if not noisy:
            return (yield from self._searched())
        answer = yield ConfidenceGaps(NOISY_PLACES)
        noise = float(answer.variance("curve").mean())
        if not noise > 0:  # noise was expected, and exact sums came
            places, gaps = np.log(np.array(NOISY_PLACES)), gaps_of(answer["curve"])
            return Temperature(exp(linear_root(places, gaps, log(self.low), log(self.high))))
        said = heard(answer["curve"][None], noise, schema.classes, self.low, self.high)
        return _moved(float(moves(said)[0]), _BEYOND if said.at_end[0] else "")

    def _searched(self) -> Flow[Temperature]:
        known: list[tuple[float, float]] = []

        def probe(temperatures: tuple[float, ...]) -> Flow[Floats]:
            answer = yield ConfidenceGaps(temperatures)
            gaps, noise = gaps_of(answer["curve"]), float(answer.variance("curve").sum())
            # chance moves a sum of gaps by the variance of right answers, less than their range in temperature
            error = sqrt(noise + CHANCE * float(gaps[-1] - gaps[0])) if noise > 0 else 0.0
            known.extend((float(gap), error) for t, gap in zip(temperatures, gaps, strict=True) if t == 1.0)
            return gaps

        found = tempered((yield from self.search.root(probe, self.low, self.high)), self.low, self.high)
        return _shrunken(found, *known[0]) if known else found

    @classmethod
    def as_published(cls) -> AccT:
        """Acc-T as in "Privacy Preserving Recalibration under Domain Shift": golden section, K = 5, on [0.5, 3].

        The search is the one of the appendix; algorithm 1 prints another, whose bracket turns inside out. Run it with
        `SourceLaplace(epsilon)`.
        """
        return cls(OnMagnitude(GoldenSection(5)), 0.5, 3.0)


def is_noisy(sources: int, epsilon: float) -> bool:
    """Whether noise of so many sources hides more of a curve than its usual shape gets wrong."""
    return epsilon * sqrt(sources) < _PRECISE


def heard(curves: Floats, noise: float, classes: int, low: float, high: float) -> ConfidenceCurves:
    """What noisy curves at `NOISY_PLACES`, (rows, places), say."""
    return ConfidenceCurves(np.log(np.array(NOISY_PLACES)), curves, noise, classes, log(low), log(high))


def moves(said: ConfidenceCurves) -> Floats:
    """ln T of each curve, as far from 0 as the evidence allows, shape (rows,)."""
    moved: Floats = (1 - share_of_identity(said.p_values, FALSE_MOVES)) * said.roots
    return moved


def _moved(log_temperature: float, warning: str = "") -> Temperature:
    return Temperature(exp(log_temperature), warning) if log_temperature != 0 else Temperature(1.0, NOT_SIGNIFICANT)


def _shrunken(found: Temperature, gap: float, error: float) -> Temperature:
    """As much of the way from T = 1 as the evidence of the gap there allows."""
    kept = float(share_of_identity(normal_p_value(gap, error), FALSE_MOVES)) if error > 0 else 0.0
    return found if kept < 1e-9 else _moved((1 - kept) * log(found.temperature), found.warning)


def check_bracket(low: float, high: float) -> None:
    if not 0 < low < high < 1e6:
        raise InputError(f"Expected temperatures 0 < low < high, found {low} and {high}.")


def tempered(found: SearchResult, low: float, high: float) -> Temperature:
    """A calibrator of a search's result; an end of the bracket that the search never left carries a warning."""
    temperature = found.within(low, high)
    warning = f"The search ended at an end of its bracket, {temperature:g}; the right temperature may lie beyond."
    return Temperature(temperature, warning if found.at_end else "")


@final
@dataclass(frozen=True)
class NLLT(Method[Temperature]):
    """Temperature with the smallest log loss, from sums over source clients.

    Parameters
    ----------
    search
        How the minimum is found.
    low, high
        The bracket of temperatures.
    margin
        A record's log loss is clipped at ln(classes) + `margin`, a public bound.
    max_loss
        The public bound itself, in place of that.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(temperature=2.0, records=20_000)
    >>> method = fc.methods.NLLT(search=fc.search.GoldenSection(steps=10))
    >>> round(fc.run(method, fc.InProcess(federation), fc.SecAgg()).artifact.temperature, 1)
    2.0
    """

    search: MinimumSearch = GoldenSection()
    low: float = 0.5
    high: float = 3.0
    margin: float = 5.0
    max_loss: float | None = field(default=None, metadata=ADDED)

    def __post_init__(self) -> None:
        check_bracket(self.low, self.high)
        if not 0 < self.margin < 100 or not (self.max_loss is None or 0 < self.max_loss < 100):
            raise InputError(f"Expected a margin or a bound above 0, found {self.margin} and {self.max_loss}.")

    @classmethod
    def as_published(cls) -> NLLT:
        """NLL-T as in "Privacy Preserving Recalibration under Domain Shift": golden section, K = 5, losses up to 10.

        The search is the one of the appendix; algorithm 1 prints another, whose bracket turns inside out. Run it with
        `SourceLaplace(epsilon)`.
        """
        return cls(GoldenSection(5), 0.5, 3.0, max_loss=10.0)

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        max_loss = log(schema.classes) + self.margin if self.max_loss is None else self.max_loss

        def probe(temperatures: tuple[float, ...]) -> Flow[Floats]:
            answer = yield ClippedLosses(temperatures, max_loss)
            return answer["loss"]

        return tempered((yield from self.search.minimum(probe, self.low, self.high)), self.low, self.high)


@final
@dataclass(frozen=True)
class ECET(Method[Temperature]):
    """Temperature with the smallest expected calibration error, from sums over source clients.

    The error has several local minima, and noise adds a floor to every bin: it is here because it was published.

    Parameters
    ----------
    search
        How the minimum is found.
    low, high
        The bracket of temperatures.
    bins
        Number of bins of the top label's confidence.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(temperature=2.0, records=20_000)
    >>> 1.5 < fc.run(fc.methods.ECET(), fc.InProcess(federation), fc.SecAgg()).artifact.temperature < 2.5
    True
    """

    search: MinimumSearch = GoldenSection()
    low: float = 0.5
    high: float = 3.0
    bins: int = 15

    def __post_init__(self) -> None:
        check_bracket(self.low, self.high)
        if self.bins < 1:
            raise InputError(f"Expected at least one bin, found {self.bins}.")

    @classmethod
    def as_published(cls) -> ECET:
        """ECE-T as in "Privacy Preserving Recalibration under Domain Shift": golden section, K = 5, 15 bins.

        The search is the one of the appendix; algorithm 1 prints another, whose bracket turns inside out. Run it with
        `SourceLaplace(epsilon)`.
        """
        return cls(GoldenSection(5), 0.5, 3.0, 15)

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        def probe(temperatures: tuple[float, ...]) -> Flow[Floats]:
            answer = yield BinnedGaps(temperatures, self.bins)
            return np.asarray(np.abs(answer["gap"]).sum(axis=1))

        return tempered((yield from self.search.minimum(probe, self.low, self.high)), self.low, self.high)


@final
@dataclass(frozen=True)
class SourceBinning(Method[TopLabelSteps]):
    """Replace the top probability by the fraction of right answers in its bin; the top class stays the same.

    Parameters
    ----------
    bins
        Number of bins of equal width.
    smoothing
        Number of pseudo-records at the bin's midpoint, which keep empty bins near the identity; 0 is the published
        ratio, with the midpoint where noise leaves no records.
    totals
        Count (right, all) instead of (right, wrong), as published: the noise is then twice as wide.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.metrics import ece
    >>> records = (federation := fc.Federation.simulated()).records
    >>> calibrator = fc.run(fc.methods.SourceBinning(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> [round(ece(probs, records.labels), 2) for probs in (records.probs, calibrator(records.probs))]
    [0.12, 0.0]
    """

    bins: int = 15
    smoothing: float = 2.0
    totals: bool = field(default=False, metadata=ADDED)

    def __post_init__(self) -> None:
        if self.bins < 1 or not self.smoothing >= 0:
            raise InputError(f"Expected bins above 0, smoothing from 0 up, found {self.bins} and {self.smoothing}.")

    @classmethod
    def as_published(cls) -> SourceBinning:
        """Histogram binning as in "Privacy Preserving Recalibration under Domain Shift": 15 bins of (right, all).

        Run it with `SourceLaplace(epsilon)`: a record changes two counts, so the noise has scale 2 / epsilon.
        """
        return cls(15, 0.0, totals=True)

    def protocol(self, schema: Schema) -> Flow[TopLabelSteps]:
        answer = yield RightWrong(self.bins, self.totals)
        right, other = np.maximum(answer["counts"], 0.0)
        middle = np.maximum((np.arange(self.bins) + 0.5) / self.bins, 1 / schema.classes)
        records = (other if self.totals else right + other) + self.smoothing
        accuracy = np.divide(right + self.smoothing * middle, records, out=middle.copy(), where=records > 0)
        steps = np.clip(accuracy, 1 / schema.classes, 1.0)
        exact = not answer.variance("counts").any()
        return TopLabelSteps(schema.classes, tuple(steps.tolist()), small_cells(answer["counts"]) if exact else None)


@final
@dataclass(frozen=True)
class DomainGaps(RecordQuery):
    """The curve of confidence gaps of each domain, and its number of records.

    A record belongs to one domain, numbered in the column `column`: it adds its curve, whose norms are at most 1 (see
    `ConfidenceGaps`), to one row of `curves`, and one to one cell of `records`.
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
        return {
            "curves": Block((self.domains, len(self.temperatures))),
            "records": Block((self.domains,), integral=True, one_hot=True, weight=0.25),
        }

    def rows(self, records: Records) -> Rows:
        """A domain out of range touches nothing."""
        domain = self._domains(records)
        known = (domain >= 0) & (domain < self.domains)
        width = len(self.temperatures)
        cells = np.hstack([domain[:, None] * width + np.arange(width), self.domains * width + domain[:, None]])
        curves = np.asarray(ConfidenceGaps(self.temperatures).rows(records).values)
        return Rows(np.where(known[:, None], cells, -1), np.concatenate([curves, np.ones((len(domain), 1))], axis=1))

    def _domains(self, records: Records) -> Floats:
        """Of text, as files have it, what is a number; NaN is in no domain."""
        column = np.asarray(records.column(self.column, "of domain numbers"))
        if column.dtype.kind not in "iufb":
            text = column.astype(str)
            plain = np.char.isdecimal(text) & (np.char.str_len(text) < 10)
            column = np.where(plain, text, "-1").astype(np.int64)
        return np.where((column > -1) & (column < self.domains), column, -1).astype(np.int64)


@final
@dataclass(frozen=True)
class DomainTemperatures(Method[TemperatureByDomain]):
    """Temperature of each domain at which mean confidence equals accuracy, from one message.

    A domain's own ln T is averaged with the common one by its variance against how much domains differ, so that a
    domain with few records borrows from the others. Under noise all move away from T = 1 only as far as the evidence
    of all domains together allows, if `places` has 1: calibrated domains are changed in at most 3 of 100 runs.

    Parameters
    ----------
    domains
        Number of domains.
    column
        The column of the records that numbers their domain from 0.
    places
        Increasing temperatures at which the curves are probed.
    low, high
        The bracket of temperatures.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> parts = [fc.Federation.simulated(temperature=t, records=20_000, clients=1).records for t in (1.5, 3.0)]
    >>> clients = [fc.Records.of_logits(p.given, p.labels, domain=np.full(len(p), k)) for k, p in enumerate(parts)]
    >>> runtime = fc.InProcess(fc.Federation.of([*clients, *clients]))
    >>> found = fc.run(fc.methods.DomainTemperatures(domains=2), runtime, fc.SecAgg()).artifact
    >>> [round(domain.temperature, 1) for domain in found.domains]
    [1.5, 2.9]
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
        answer = yield DomainGaps(self.places, self.domains, self.column)
        curves, records = answer["curves"], np.maximum(answer["records"], 0.0)
        noise = float(answer.variance("curves").max(initial=0.0)) * len(self.places)
        overall = self._crossing(curves.sum(axis=0))
        own = np.array([self._crossing(curve) for curve in curves])
        variances = np.array([self._variance(*pair, noise) for pair in zip(curves, records, strict=True)])
        moved = self._moved(curves, records, noise)
        shrunk = moved * shrink(own, variances, overall)
        common = Temperature(exp(moved * overall))
        return TemperatureByDomain(common, tuple(Temperature(exp(one)) for one in shrunk.tolist()))

    def _moved(self, curves: Floats, records: Floats, noise: float) -> float:
        """How much of the way from T = 1 the gaps there allow, of all domains in one sum or of the worst of them."""
        if not noise > 0 or 1.0 not in self.places:
            return 1.0
        curves, records = (np.clip(np.nan_to_num(part), -_MAX_SUM, _MAX_SUM) for part in (curves, records))
        at_one = [float(gaps_of(curve)[self.places.index(1.0)]) for curve in (curves.sum(axis=0), *curves)]
        chances = np.append(records.sum(), records) / 4 + noise * np.append(self.domains, np.ones(self.domains))
        every, *single = map(normal_p_value, at_one, np.sqrt(chances).tolist())
        return 1 - float(share_of_identity(2 * min(every, self.domains * min(single)), FALSE_MOVES))

    def _crossing(self, curve: Floats) -> float:
        return linear_root(np.log(np.array(self.places)), gaps_of(curve), log(self.low), log(self.high))

    def _variance(self, curve: Floats, records: float, noise: float) -> float:
        """Variance of a domain's ln T: that of its gap, over the squared gradient of its curve."""
        gradient = 2 * float(np.maximum(curve[1:], 0.0).sum()) / log(self.places[-1] / self.places[0])
        largest = log(self.high / self.low) ** 2
        return min((records / 4 + noise) / gradient**2, largest) if gradient > 0 else largest


def shrink(own: Floats, variances: Floats, overall: float) -> Floats:
    """Shrink each value toward the overall one by its variance against that between values (DerSimonian and Laird)."""
    precision = 1 / np.maximum(variances, 1e-12)
    mean = float((precision * own).sum() / precision.sum())
    excess = float((precision * (own - mean) ** 2).sum()) - (len(own) - 1)
    scale = float(precision.sum() - (precision**2).sum() / precision.sum())
    between = max(excess / scale, 0.0) if scale > 0 else 0.0
    weight = between / (between + np.maximum(variances, 1e-12))
    return weight * own + (1 - weight) * overall
