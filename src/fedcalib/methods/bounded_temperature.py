"""BoundedTemperature: the temperature at which clients' verdicts cancel, each of them bounded by construction."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import Final, final

import numpy as np

from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.flows.likely_root import SPREAD, USUAL, crossing, stands_out
from fedcalib.flows.vote import Vote
from fedcalib.method import Flow, Method
from fedcalib.methods.one_shot_temperature import DROWNED
from fedcalib.queries.temperature_scores import TemperatureScores
from fedcalib.records import Schema

_LEAN: Final = 4 / 3  # times the doubt that a call for a sharper model has to stand out by


@final
@dataclass(frozen=True)
class BoundedTemperature(Method[Temperature]):
    """Find the temperature for whole clients' privacy: as many clients find the model too sharp there as too soft.

    `OneShotTemperature` sums slopes, so whoever hides whole clients has to guess how large a client's sum may be, and a
    few loud clients set the noise for all. Here a client says at each of `points` temperatures by how many standard
    deviations its labels speak against the model, between -1 and 1, and one release of bounded numbers is enough. With
    exact sums it is near the pooled optimum, not at it: the price is a small bias where clients are few and tiny.

    Where the vote may as well turn at T = 1, within `doubt` standard deviations of the noise, the model is left as it
    is, with a warning. Votes of small clients lean toward sharper models, so that has to stand out more. `cut` and
    `quiet` are those of `TemperatureScores`; `weight` is this method's share of a pipeline's budget.
    """

    points: int = 8
    lowest: float = 0.7
    highest: float = 4.0
    cut: float = 2.0
    quiet: float = 2.0
    doubt: float = 3.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.points < 4 or not 0 < self.lowest < 1 < self.highest or not self.doubt >= 0:
            raise InputError("Expected at least 4 points on a range of temperatures around 1, and no negative doubt.")

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        """Ask once, and find where the sum of verdicts crosses zero."""
        grid = np.linspace(log(1 / self.highest), log(1 / self.lowest), self.points)
        query = TemperatureScores(tuple(np.exp(grid).tolist()), self.cut, self.quiet, self.weight)
        answer = yield query
        vote = Vote(grid, answer["score"], float(answer.variance("score")[0]), schema.clients)
        # the shape that votes have says where this one turns, or a free curve where it has another
        turn = vote.turn(-USUAL, SPREAD) if vote.fits else crossing(grid, vote.sums, vote.noise, 0.0)
        doubt = self.doubt * (_LEAN if turn > 0 else 1.0)
        clear = vote.stands_out(0.0, doubt) if vote.fits else stands_out(grid, vote.sums, vote.noise, doubt)
        return Temperature(exp(-turn)) if clear else Temperature(1.0, DROWNED)
