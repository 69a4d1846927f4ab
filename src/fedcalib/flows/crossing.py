"""Where a rising function crosses zero, read off a few of its values."""

from __future__ import annotations

import numpy as np

from fedcalib.types import Floats

_HALVINGS = 50


def crossing_of_line(places: Floats, values: Floats, low: float, high: float) -> float:
    """Cross zero on the piece of a rising polygon that does, or on the outer pieces prolonged; stay in [low, high]."""
    rising = np.maximum.accumulate(values)
    if rising[0] >= 0:
        piece = 0
    elif rising[-1] < 0:
        piece = len(values) - 2
    else:
        piece = int(np.searchsorted(rising, 0.0)) - 1
    run, rise = places[piece + 1] - places[piece], values[piece + 1] - values[piece]
    if not rise > 0:
        return low if values[piece] + values[piece + 1] > 0 else high
    return float(np.clip(places[piece] - values[piece] * run / rise, low, high))


def crossings_of_curves(places: Floats, values: Floats) -> Floats:
    """Cross zero on the rising cubic through the values of each row, (rows, places); give (rows,).

    A row that stays below zero crosses at the last place, one that never is below zero at the first. The cubic never
    turns back between two places (Fritsch and Carlson), so that the crossing lies between those whose signs differ.
    """
    rising = np.maximum.accumulate(values, axis=1)
    piece = np.clip((rising < 0).sum(axis=1) - 1, 0, len(places) - 2)
    runs = np.diff(places)
    rows, run = np.arange(len(values)), runs[piece]
    slopes = _slopes(runs, np.diff(rising, axis=1) / runs)
    ends = rising[rows, piece], rising[rows, piece + 1]
    share = _shares(*ends, run * slopes[rows, piece], run * slopes[rows, piece + 1])
    found: Floats = np.where(rising[:, 0] >= 0, places[0], places[piece] + run * share)
    return np.where(rising[:, -1] <= 0, places[-1], found)


def _slopes(runs: Floats, steep: Floats) -> Floats:
    """Choose the slope of the cubic at each place, (rows, places), from those of the pieces, (rows, places - 1)."""
    if len(runs) == 1:
        return np.concatenate([steep, steep], axis=1)
    left, right = 2 * runs[1:] + runs[:-1], runs[1:] + 2 * runs[:-1]
    before, after = steep[:, :-1], steep[:, 1:]
    weight = left * after + right * before
    inner = (left + right) * before / np.where(weight > 0, weight, 1.0) * after
    first = _outer(runs[0], runs[1], steep[:, 0], steep[:, 1])
    last = _outer(runs[-1], runs[-2], steep[:, -1], steep[:, -2])
    return np.concatenate([first[:, None], inner, last[:, None]], axis=1)


def _outer(run: float, next_run: float, steep: Floats, next_steep: Floats) -> Floats:
    parabola = ((2 * run + next_run) * steep - run * next_steep) / (run + next_run)
    return np.clip(parabola, 0.0, 3 * steep)


def _shares(start: Floats, end: Floats, first: Floats, last: Floats) -> Floats:
    """Say how far into its piece each cubic crosses zero, by halving; slopes are those over the whole piece."""
    low, high = np.zeros(len(start)), np.ones(len(start))
    for _ in range(_HALVINGS):
        t = (low + high) / 2
        value = (
            (1 + 2 * t) * (1 - t) ** 2 * start + t * (1 - t) ** 2 * first
            + t**2 * (3 - 2 * t) * end - t**2 * (1 - t) * last
        )  # fmt: skip
        below = value < 0
        low, high = np.where(below, t, low), np.where(below, high, t)
    return (low + high) / 2
