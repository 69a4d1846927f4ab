"""Evaluations of parts and of changes: by group of records, and of two scores of the same records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from fedcalib.artifacts.performance import Performance
from fedcalib.artifacts.saving import Artifact
from fedcalib.cohort import MIN_RECORDS
from fedcalib.estimation.paired import difference
from fedcalib.metrics.intervals import Measured


@final
@dataclass(frozen=True, eq=False)
class GroupedPerformance(Artifact):
    """The evaluation of each group of a public list.

    Parameters
    ----------
    column
        The column that says to which group a record belongs.
    groups
        The evaluation of each group, by its value as text.
    withheld
        The groups that may not be shown, for lack of records.
    warnings
        What a reader has to know.

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> score, sex = rng.random(1000), rng.choice(["F", "M"], 1000)
    >>> records = fc.Records.of_scores(score, rng.random(1000) < score, sex=sex)
    >>> method = fc.methods.GroupedMetrics("sex", ("F", "M"))
    >>> found = fc.run(method, fc.InProcess(fc.Federation.of([records])), fc.Open()).artifact
    >>> sorted(found.groups), 0 < found.differences()["M - F"]["auc"].high
    (['F', 'M'], True)
    """

    column: str
    groups: Mapping[str, Performance]
    withheld: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def differences(self) -> dict[str, dict[str, Measured]]:
        """Each group less the first one, metric by metric, with its interval; groups hold different records."""
        names = list(self.groups)
        return {f"{name} - {names[0]}": self._less(name, names[0]) for name in names[1:]}

    def _less(self, name: str, base: str) -> dict[str, Measured]:
        own, other = self.groups[name].measures(), self.groups[base].measures()
        return {metric: difference(own[metric], other[metric]) for metric in own if metric in other}

    def published(self, min_count: int = MIN_RECORDS) -> GroupedPerformance:
        """The groups as they may be published; exact ones of fewer than `min_count` records are withheld."""
        small = [name for name, found in self.groups.items() if found.exact and 0 < found.records < min_count - 0.5]
        shown = {name: found.published(min_count) for name, found in self.groups.items() if name not in small}
        return replace(self, groups=shown, withheld=tuple(dict.fromkeys((*self.withheld, *small))))

    def to_json(self) -> dict[str, Any]:
        """Figures by group, and differences to the first group."""
        apart = {
            pair: {name: found.to_json() for name, found in figures.items()}
            for pair, figures in self.differences().items()
        }
        groups = {name: found.to_json() for name, found in self.groups.items()}
        return {"column": self.column, "groups": groups, "differences": apart, "withheld": list(self.withheld)}


@final
@dataclass(frozen=True, eq=False)
class PairedPerformance(Artifact):
    """Two evaluations of the same records, and the change from one to the other.

    Parameters
    ----------
    before, after
        The evaluations: without and with a calibrator, or of a model and its rival.
    change
        After less before, by metric, with a paired 95% interval: a change is clear where it does not contain zero.
    warnings
        What a reader has to know.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2)
    >>> method = fc.methods.PairedMetrics(calibrator=fc.artifacts.Temperature(2.0))
    >>> found = fc.run(method, fc.InProcess(federation), fc.SecAgg()).artifact
    >>> found.change["nll"].high < 0  # the simulated model is over-confident
    True
    """

    before: Performance
    after: Performance
    change: Mapping[str, Measured]
    warnings: tuple[str, ...] = ()

    def published(self, min_count: int = MIN_RECORDS) -> PairedPerformance:
        """The same change, with the tables of both evaluations as they may be published."""
        return replace(self, before=self.before.published(min_count), after=self.after.published(min_count))

    def to_json(self) -> dict[str, Any]:
        """Both evaluations and the change by metric."""
        change = {name: found.to_json() for name, found in self.change.items()}
        return {"before": self.before.to_json(), "after": self.after.to_json(), "change": change}
