"""Federated averaging of a family's parameters, as a sub-protocol."""

from __future__ import annotations

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.families.family import Family
from fedcalib.method import Flow
from fedcalib.queries.local_fit import LocalFit
from fedcalib.records import Schema

_FARTHEST = 1e9


def federated_fit(
    family: Family, schema: Schema, *, rounds: int, clip: float, rate: float, ridge: float, steps: int
) -> Flow[Calibrator]:
    """Average the clients' clipped changes, `rounds` times, from the identity on.

    The sum is divided by the clients that answered, or under differential privacy by those expected: the number who
    really did would leak, and could be zero.
    """
    parameters = family.start(schema.classes)
    for _ in range(rounds):
        answer = yield LocalFit(family, tuple(parameters.tolist()), clip, ridge, steps)
        if answer.clients:
            parameters = parameters + rate * clip * answer["change"] / answer.clients
            parameters = np.clip(parameters, -_FARTHEST, _FARTHEST)
    return family.artifact(parameters, schema.classes)
