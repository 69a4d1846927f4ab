"""How much Gaussian noise a budget asks for, as a table: run this file to print it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import sqrt
from typing import final

from fedcalib.accounting import analytic_gaussian_multiplier, multiplier_for


@final
@dataclass(frozen=True)
class NoiseRow:
    """One line: noise for `steps` releases, each on a Poisson sample of rate `rate`, within (epsilon, delta).

    `multiplier` is what fedcalib adds to each release, in units of a term's L2 bound. `exact` is what continuous noise
    would need, known in closed form where everybody takes part. `per_term` is the noise on the sum of all releases over
    the weight that one client's term has in it, which tells what sampling is worth.
    """

    steps: int
    rate: float
    epsilon: float
    delta: float
    multiplier: float
    exact: float | None
    per_term: float


def noise_table(
    steps: Sequence[int] = (1, 12, 30),
    rates: Sequence[float] = (0.1, 1.0),
    epsilons: Sequence[float] = (0.5, 1.0, 3.0, 8.0),
    delta: float = 1e-5,
) -> list[NoiseRow]:
    """Work out the noise for every combination."""
    return [_row(t, rate, epsilon, delta) for t, rate, epsilon in product(steps, rates, epsilons)]


def _row(steps: int, rate: float, epsilon: float, delta: float) -> NoiseRow:
    multiplier = multiplier_for(epsilon, delta, steps, rate)
    exact = analytic_gaussian_multiplier(epsilon, delta, steps) if rate == 1 else None
    return NoiseRow(steps, rate, epsilon, delta, multiplier, exact, multiplier / (rate * sqrt(steps)))


def markdown(rows: Sequence[NoiseRow]) -> str:
    """Lay the rows out for a page of documentation."""
    head = (
        "| releases | sampling rate | epsilon | noise multiplier | exact, continuous | noise per term |\n"
        + "|--:" * 6
        + "|"
    )
    lines = [
        f"| {row.steps} | {row.rate:g} | {row.epsilon:g} | {row.multiplier:.3f} "
        f"| {'' if row.exact is None else f'{row.exact:.3f}'} | {row.per_term:.2f} |"
        for row in rows
    ]
    return "\n".join([head, *lines])


if __name__ == "__main__":
    print(markdown(noise_table()))
