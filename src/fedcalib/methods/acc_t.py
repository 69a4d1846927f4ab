"""AccT: the temperature at which mean confidence equals accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.flows.search import Found, Interpolation, RootSearch
from fedcalib.method import Flow, Method
from fedcalib.queries.shift import ConfidenceGaps, gaps_of
from fedcalib.records import Schema
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


def tempered(found: Found, low: float, high: float) -> Temperature:
    """Make a calibrator of what a search found; an end of the bracket that it never left carries a warning."""
    temperature = found.within(low, high)
    warning = f"The search ended at an end of its bracket, {temperature:g}; the right temperature may lie beyond."
    return Temperature(temperature, warning if found.at_end else "")
