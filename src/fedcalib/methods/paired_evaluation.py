"""Evaluation by group of records, and of two scores of the same records, each from one message.

`GroupedMetrics` counts scores by group of a public list: a record is in one group, so groups cost no more than one
table. `PairedMetrics` measures the change that a calibrator makes, or the difference to another model.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from math import sqrt
from typing import Any, Final, final

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.performance import BinaryPerformance, binary_performance
from fedcalib.artifacts.performance_parts import GroupedPerformance, PairedPerformance
from fedcalib.errors import InputError
from fedcalib.estimation.paired import Pair, changes, coarse, crossed, rescored
from fedcalib.estimation.score_figures import ScoreTotals
from fedcalib.estimation.score_sheet import ScoreSheet
from fedcalib.flows.tables import two_classes
from fedcalib.method import Budget, Flow, Method
from fedcalib.methods.evaluation import FederatedMetrics, Resolution, totals_of
from fedcalib.queries.scores import LOG_ODDS, PairedCells, ScoreCells, ScoreSums, Values, check_groups
from fedcalib.queries.wrapped import ByGroup, Calibrated
from fedcalib.query import Answer, Join, Query
from fedcalib.records import Schema
from fedcalib.wire import ADDED

_MEASURE: Final = FederatedMetrics()
_EXACT_PAIRS: Final = 64  # cells per score of the joint table where sums are exact


@final
@dataclass(frozen=True)
class GroupedMetrics(Method[GroupedPerformance]):
    """Measure a classifier in each group of a public list, such as the sexes or calendar months.

    The group is a further index of the table of scores, or of all sums where there are several classes. A record is in
    one group at most, so a privacy budget holds for all groups at once. A record whose value is not on the list is in
    no group.

    Parameters
    ----------
    column
        The column of the records that says to which group one belongs.
    groups
        The values that define groups: a public list.
    measure
        Settings of the evaluation; its `records` are those of a typical group.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.methods.GroupedMetrics("sex", ("F", "M"))
    >>> fc.method.Plan.of(method, fc.Schema(classes=2, clients=5)).queries[0].parts[0].blocks["cells"].shape
    (3, 2, 8192)
    """

    column: str
    groups: Values
    measure: FederatedMetrics = _MEASURE

    def __post_init__(self) -> None:
        check_groups(self.column, self.groups)

    def with_budget(self, budget: Budget) -> GroupedMetrics:
        return replace(self, measure=self.measure.with_budget(budget))

    def protocol(self, schema: Schema) -> Flow[GroupedPerformance]:
        if schema.classes != 2:
            return (yield from self._of_classes(schema))
        resolution = replace(Resolution.of(self.measure, schema), tree=False)
        cells = ScoreCells(resolution.cells, resolution.axis, group=self.column, groups=self.groups)
        exact = self.measure.epsilon is None
        sums = ScoreSums(self.measure.bins, self.measure.threshold, group=self.column, groups=self.groups)
        join = Join((cells, sums) if exact else (cells,))
        answer = yield join
        parts = [answer.part(join, index) for index in range(len(join.parts))]
        found = {str(name): self._group(resolution, parts, place) for place, name in enumerate(self.groups)}
        return GroupedPerformance(self.column, found)

    def _of_classes(self, schema: Schema) -> Flow[GroupedPerformance]:
        metrics = self.measure.of_classes
        message = metrics.message(schema)
        queries = tuple(ByGroup(query, self.column, self.groups) for query in message.queries)
        join = Join(queries)
        answer = yield join
        parts = [answer.part(join, index) for index in range(len(queries))]
        found = {}
        for place, name in enumerate(self.groups):
            own = [query.part(part, place) for query, part in zip(queries, parts, strict=True)]
            found[str(name)] = metrics.reading(message, message.sums(own)).performance(own)
        return GroupedPerformance(self.column, found)

    def _group(self, resolution: Resolution, parts: list[Answer], place: int) -> BinaryPerformance:
        sheet = resolution.sheet_of(parts[0]["cells"][place], parts[0].variance("cells")[place])
        totals = totals_of(parts[1], place) if len(parts) > 1 and sheet.table.exact else None
        return _performance(self.measure, sheet, totals)


@final
@dataclass(frozen=True)
class PairedMetrics(Method[PairedPerformance]):
    """Measure a binary classifier before and after a calibrator, or beside another model, with the paired change.

    A calibrator that is a function of the score alone costs nothing beyond one evaluation: the server knows what it
    does to each cell of the table. Where a calibrator jumps, noisy cells are counted in parts, so that this holds for
    step functions too. Otherwise a table of both scores is counted, coarser under noise.

    Parameters
    ----------
    calibrator
        The calibrator; None for another model.
    column
        The column of the other model's scores; empty for a calibrator.
    measure
        Settings of the evaluation.
    cut
        Whether cells are counted in parts where the calibrator jumps; without it, the table is that of an evaluation by
        itself.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.methods.PairedMetrics(calibrator=fc.artifacts.Temperature(2.0))
    >>> federation = fc.Federation.simulated(classes=2)
    >>> found = fc.run(method, fc.InProcess(federation), fc.DistributedDP(2.0)).artifact
    >>> found.change["auc"].value
    0.0
    """

    calibrator: Calibrator | None = None
    column: str = ""
    measure: FederatedMetrics = _MEASURE
    cut: bool = field(default=True, metadata=ADDED)

    def __post_init__(self) -> None:
        if (self.calibrator is None) == (not self.column):
            raise InputError("Expected a calibrator or the column of another model's scores, found both or neither.")

    def with_budget(self, budget: Budget) -> PairedMetrics:
        return replace(self, measure=self.measure.with_budget(budget))

    def protocol(self, schema: Schema) -> Flow[PairedPerformance]:
        two_classes(schema)
        if self.calibrator is not None and is_of_score(self.calibrator):
            return (yield from self._same_table(self.calibrator, schema))
        return (yield from self._joint(schema))

    def _same_table(self, calibrator: Calibrator, schema: Schema) -> Flow[PairedPerformance]:
        resolution = Resolution.of(self.measure, schema)
        sums = ScoreSums(self.measure.bins, self.measure.threshold)
        totals: list[ScoreTotals | None] = [None, None]
        if self.measure.epsilon is None:
            join = Join((ScoreCells(resolution.cells, resolution.axis), sums, Calibrated(sums, calibrator)))
            answer = yield join
            cells = answer.part(join, 0)
            sheet = resolution.sheet_of(cells["cells"], cells.variance("cells"))
            totals = [_totals(answer.part(join, index), sheet) for index in (1, 2)]
        elif self.cut and self.measure.alone != "record" and not self.measure.scores:
            return self._result((yield from resolution.pair(calibrator)), totals)
        else:
            sheet = yield from resolution.sheet()
        return self._result(rescored(sheet, calibrator), totals)

    def _joint(self, schema: Schema) -> Flow[PairedPerformance]:
        resolution, exact = Resolution.of(self.measure, schema), self.measure.epsilon is None
        number = len(self.measure.scores) or int(max(min(2 * sqrt(resolution.cells), 32), 8))
        pairs = replace(resolution, cells=number, tree=False)
        if exact and not self.measure.scores:  # it only serves the variance of the change
            pairs = Resolution(_EXACT_PAIRS, LOG_ODDS)
        query = PairedCells(pairs.cells, pairs.axis, self.column, self.calibrator)
        join = Join((query, *(self._own(resolution) if exact else ())))
        answer = yield join
        first = answer.part(join, 0)
        counts, noise = first["pairs"], first.variance("pairs")
        before = pairs.sheet_of(counts.sum(axis=2), noise.sum(axis=2))
        after = pairs.sheet_of(counts.sum(axis=1), noise.sum(axis=1))
        pair = crossed(before, after, counts, float(noise.mean()))
        if not exact or not before.table.exact:
            return self._result(pair, [None, None])
        parts = [answer.part(join, index) for index in range(1, 5)]
        fine = [resolution.sheet_of(part["cells"], part.variance("cells")) for part in (parts[0], parts[2])]
        totals = [_totals(part, before) for part in (parts[1], parts[3])]
        return self._result(coarse(pair, fine[0], fine[1]), totals)

    def _own(self, resolution: Resolution) -> tuple[Query, ...]:
        """Fine tables and exact sums of both scores."""
        measure = self.measure
        own = ScoreCells(resolution.cells, resolution.axis), ScoreSums(measure.bins, measure.threshold)
        if self.calibrator is not None:
            return (*own, *(Calibrated(query, self.calibrator) for query in own))
        return (*own, *(replace(query, column=self.column) for query in own))

    def _result(self, pair: Pair, totals: list[ScoreTotals | None]) -> PairedPerformance:
        before = _performance(self.measure, pair.before, totals[0])
        after = _performance(self.measure, pair.after, totals[1])
        change = changes(pair, self.measure.threshold, before.measures(), after.measures())
        return PairedPerformance(before, after, change)


def _totals(sums: Answer, sheet: ScoreSheet) -> ScoreTotals | None:
    return totals_of(sums, 0) if sheet.table.exact else None


def _performance(measure: FederatedMetrics, sheet: ScoreSheet, totals: ScoreTotals | None) -> BinaryPerformance:
    return binary_performance(sheet, measure.threshold, measure.bins, totals, measure.epsilon)


def is_of_score(calibrator: Calibrator) -> bool:
    """Whether a calibrator of two classes is a function of the score alone, and so are those inside of it."""
    kind = type(calibrator)
    if kind.of is not Calibrator.of or kind.over is not Calibrator.over:
        return False
    values: list[Any] = [getattr(calibrator, field.name) for field in fields(calibrator)]
    inside = [one for value in values for one in (value if isinstance(value, tuple) else (value,))]
    return all(is_of_score(one) for one in inside if isinstance(one, Calibrator))
