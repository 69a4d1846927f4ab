"""PerClientECE: how badly calibrated the usual client is, though no client is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import final

from fedcalib.artifacts.client_errors import ClientErrors
from fedcalib.errors import InputError
from fedcalib.measured import Measured
from fedcalib.method import Flow, Method
from fedcalib.metrics.intervals import normal_quantile
from fedcalib.queries.own_errors import OwnErrors
from fedcalib.records import Schema

_NOTHING = ClientErrors(
    None, None, ("Nothing can be said: too few clients have records enough, or noise drowns them.",)
)


@final
@dataclass(frozen=True)
class PerClientECE(Method[ClientErrors]):
    """Average clients' own calibration errors of the top label: a model can be right on the whole and wrong for all.

    Clients with fewer than `fewest` records stay out. Small clients look worse than they are, since chance alone parts
    confidence from accuracy; compare the figure before and after a calibrator, or between models, on the same clients.
    """

    bins: int = 15
    fewest: int = 10

    def __post_init__(self) -> None:
        if self.bins < 1 or self.fewest < 1:
            raise InputError(f"Expected a bin and a record at least, found {self.bins} and {self.fewest}.")

    def protocol(self, schema: Schema) -> Flow[ClientErrors]:
        """Ask once: clients, errors and squares."""
        answer = yield OwnErrors(self.bins, self.fewest)
        clients, errors, squares = answer["errors"].tolist()
        noise = float(answer.variance("errors").max(initial=0.0))
        if not clients > max(3 * sqrt(noise), 1.0) or not isfinite(clients + errors + squares):
            return _NOTHING
        mean = min(max(errors / clients, 0.0), 1.0)
        between = min(max(squares / clients - mean**2, 0.0), 0.25)
        doubt = between / (clients - 1) + noise * (1 + mean**2) / clients**2
        half = normal_quantile(0.95) * sqrt(doubt)
        return ClientErrors(Measured(mean, max(mean - half, 0.0), min(mean + half, 1.0)), sqrt(between))
