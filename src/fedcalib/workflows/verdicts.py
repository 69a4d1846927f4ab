"""Plain sentences on what an evaluation found, who gains, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, nan
from typing import Final

from fedcalib.artifacts.class_performance import ClassPerformance
from fedcalib.artifacts.performance import Performance
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import ACCURACY, AUC, CALIBRATION_IN_THE_LARGE, ECE, NET_BENEFIT, OBSERVED_EXPECTED, SLOPE

Figures = Mapping[str, Measured]
_NAMES: Final = 8  # sites or groups that a sentence lists


def known(found: object) -> dict[str, Measured]:
    """The metrics of an evaluation that have a value and an interval, by name."""
    figures = found.measures() if isinstance(found, Performance) else {}
    return {name: one for name, one in figures.items() if isfinite(one.value + one.low + one.high)}


def calibration(figures: Figures) -> str:
    """Whether predictions agree with what happened."""
    ratio, slope = figures.get(OBSERVED_EXPECTED.name), figures.get(SLOPE.name)
    if ratio is None or not isfinite(ratio.low + ratio.high):
        return "These records are too few to tell whether the predictions agree with what happened."
    said = f"for every 100 events that were predicted, {_hundred(ratio)} happened"
    if ratio.high < 1:
        return f"The predicted probabilities are too high: {said}.{_spread(slope)}"
    if ratio.low > 1:
        return f"The predicted probabilities are too low: {said}.{_spread(slope)}"
    if _spread(slope):
        return f"On average the predicted probabilities are right: {said}.{_spread(slope)}"
    return f"The predicted probabilities agree with what happened: {said}."


def several_classes(found: ClassPerformance) -> tuple[str, ...]:
    """How often the most likely class is right, and whether its probability says so."""
    right, sure = known(found).get(ACCURACY.name), mean_confidence(found)
    if right is None:
        return ()
    said = f"The most likely class is right for {_hundred(right)} of 100 records"
    if not isfinite(sure):
        return (f"{said}.",)
    stated = f"its predicted probability is {100 * sure:.0f}% on average"
    if right.low <= sure <= right.high:
        return (f"{said}, and {stated}: on average the classifier is as sure as it is right.",)
    return (f"{said}, while {stated}: the classifier is {'too sure' if sure > right.high else 'not sure enough'}.",)


def mean_confidence(found: ClassPerformance) -> float:
    """The mean probability of the most likely class; NaN where it may not be shown."""
    count = float(found.table.count.sum())
    return float(found.table.confidence.sum()) / count if count > 0 else nan


def by_class(rows: Mapping[str, Measured | None]) -> tuple[str, ...]:
    """Which class is found best and which worst, by recall, where the two clearly differ."""
    stated = {name: one for name, one in rows.items() if one is not None and isfinite(one.low + one.high)}
    if len(stated) < 2:
        return ()
    best, worst = max(stated, key=lambda name: stated[name].value), min(stated, key=lambda name: stated[name].value)
    if stated[worst].high >= stated[best].low:
        return ("No class is clearly found more often than another.",)
    found = [f"{name} ({100 * stated[name].value:.0f} of 100 found)" for name in (best, worst)]
    return (f"The class that is found best is {found[0]}, the one that is found worst {found[1]}.",)


def after_evaluation_of_classes(found: ClassPerformance) -> tuple[str, ...]:
    """What to do next with a classifier of several classes that was measured."""
    right, sure = known(found).get(ACCURACY.name), mean_confidence(found)
    steps = []
    if right is not None and isfinite(sure) and not right.low <= sure <= right.high:
        steps.append("Recalibrate before the probabilities are used: run `fedcalib calibrate` on the same files.")
    steps.append("Look at the classes that are taken for each other: see the confusion table and the figures by class.")
    steps.append("Measure again when patients, coding or treatment change: run `fedcalib monitor` by month.")
    return tuple(steps)


def _hundred(ratio: Measured) -> str:
    return f"{100 * ratio.value:.0f} (95% interval {100 * ratio.low:.0f} to {100 * ratio.high:.0f})"


def _spread(slope: Measured | None) -> str:
    """A sentence about predictions that are too extreme or too cautious, where that is clear."""
    if slope is None or not isfinite(slope.low + slope.high) or slope.low <= 1 <= slope.high:
        return ""
    found = f"calibration slope {slope.value:.2f}, 95% interval {slope.low:.2f} to {slope.high:.2f}"
    if slope.high < 1:
        return f" High predictions are too high and low ones too low ({found})."
    return f" High predictions are too low and low ones too high ({found})."


def ranking(figures: Figures) -> tuple[str, ...]:
    """How well positives are told from negatives."""
    area = figures.get(AUC.name)
    if area is None:
        return ()
    said = f"In {100 * area.value:.0f} of 100 pairs of a positive and a negative record, the positive is scored higher"
    doubt = " These records cannot tell it from guessing." if area.low <= 0.5 <= area.high else ""
    return (f"{said} (95% interval {100 * area.low:.0f} to {100 * area.high:.0f}).{doubt}",)


def miscalibrated(figures: Figures) -> bool:
    """Whether the average or the spread of predictions is clearly wrong."""
    targets = {OBSERVED_EXPECTED.name: 1.0, SLOPE.name: 1.0, CALIBRATION_IN_THE_LARGE.name: 0.0}
    found = [(figures[name], target) for name, target in targets.items() if name in figures]
    return any(one.high < target or one.low > target for one, target in found)


def after_evaluation(figures: Figures) -> tuple[str, ...]:
    """What to do next with a classifier that was measured."""
    steps = []
    if miscalibrated(figures):
        steps.append("Recalibrate before the probabilities are used: run `fedcalib calibrate` on the same files.")
    benefit = figures.get(NET_BENEFIT.name)
    if benefit is not None and benefit.high < 0:
        steps.append("At the chosen threshold the classifier does harm: choose another one below.")
    elif benefit is not None:
        steps.append("Choose the threshold with the people who act on alerts: see the section on thresholds.")
    area = figures.get(AUC.name)
    if area is not None and area.low <= 0.5 <= area.high:
        steps.append("Do not use the ranking: collect more records, or improve the classifier.")
    steps.append("Measure again when patients, coding or treatment change: run `fedcalib monitor` by month.")
    return tuple(steps)


def after_calibration(verdicts: Mapping[str, str], after: Figures) -> tuple[str, ...]:
    """What to do next with a calibrator."""
    verdict = verdicts.get(ECE.name, "")
    if verdict.startswith("worse"):
        return ("Do not use this calibrator: it made the calibration error larger.",)
    if not verdict.startswith("better"):
        return (
            "Keep the scores as they are, or measure on more records: no clear gain was found.",
            "If the average is known to have shifted, try a method with fewer parameters.",
        )
    steps = ["Apply calibrator.json wherever the classifier runs: run `fedcalib apply calibrator.json` on new scores."]
    if miscalibrated(after):
        steps.append("Some miscalibration is left: see the calibration slope and the observed to expected ratio.")
    steps.append("Check thresholds again: recalibrated probabilities cross them at other scores.")
    steps.append("Measure again when the data changes: run `fedcalib monitor` by month.")
    return tuple(steps)


def between(kind: str, parts: Mapping[str, Figures]) -> tuple[str, ...]:
    """For which sites or groups predictions are clearly too high or too low."""
    found = {name: figures.get(CALIBRATION_IN_THE_LARGE.name) for name, figures in parts.items()}
    high = [name for name, one in found.items() if one is not None and one.high < 0]
    low = [name for name, one in found.items() if one is not None and one.low > 0]
    if not any(one is not None for one in found.values()):
        return ()
    if not high and not low:
        return (f"By {kind}, no average is clearly too high or too low.",)
    said = [f"too {word} for {_list(names)}" for word, names in (("high", high), ("low", low)) if names]
    return (f"By {kind}, predictions are on average {' and '.join(said)}.",)


def movement(sites: Sequence[tuple[str, Measured | None, Measured | None]], what: str) -> tuple[str, ...]:
    """At which sites an error fell and at which it rose, as measured."""
    known = [(name, before, after) for name, before, after in sites if before is not None and after is not None]
    if not known:
        return ()
    gain = [name for name, before, after in known if after.value < before.value]
    loss = [name for name, before, after in known if after.value >= before.value]
    fell = f"The {what} fell at {len(gain)} of {len(known)} sites" + (f": {_list(gain)}." if gain else ".")
    return (fell + (f" It did not fall at {_list(loss)}." if loss else ""),)


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more
