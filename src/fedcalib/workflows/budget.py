"""How one budget covers a calibration and the measurement of what it changes.

Held-out records are not the fitted ones: one coin per record decides, and removing one record moves no other. So
where the unit is a record, calibration and measurement compose in parallel: a record pays for the one or for the other,
each may use the whole budget, and the total is the larger of the two. Where the unit is a client, it holds records of
both kinds, so they add up and share the budget half and half. Test files of their own may describe the same people as
the fitted ones, so they add up too. Before and after are measured by one message, with one share of the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from fedcalib.accounting.spending import Spending
from fedcalib.errors import InputError
from fedcalib.privacy import Privacy


@final
@dataclass(frozen=True)
class Shares:
    """Which part of the budget each phase gets."""

    calibration: float
    measurement: float  # of before and after together
    parallel: bool


_MARK: Final = "Simulation: not private. It would be: "
ALONE: Final = Shares(1.0, 0.0, True)
PARALLEL: Final = Shares(1.0, 1.0, True)
SEQUENTIAL: Final = Shares(0.5, 0.5, False)


def shares(unit: str, held_out: bool) -> Shares:
    """How a budget is shared between calibration and measurement."""
    return PARALLEL if held_out and unit == "record" else SEQUENTIAL


def scaled(privacy: Privacy, share: float) -> Privacy:
    """The same privacy model with a share of its budget; one without a budget stays as it is."""
    parts = {name: share * getattr(privacy, name) for name in ("epsilon", "delta") if hasattr(privacy, name)}
    return replace(privacy, **parts)  # type: ignore[type-var]


def together(calibration: Spending, measurements: Sequence[Spending], parallel: bool) -> Spending:
    """What calibration and measurements spend together."""
    if calibration.epsilon is None or not measurements:
        return calibration
    fitted = (calibration.epsilon, calibration.delta or 0.0)
    pairs = zip(fitted, added(measurements), strict=True)
    epsilon, delta = (max(pair) if parallel else sum(pair) for pair in pairs)
    statement = _statement(calibration, epsilon, delta, parallel)
    return replace(calibration, epsilon=epsilon, delta=delta, statement=statement)


def added(spent: Sequence[Spending]) -> tuple[float, float]:
    """The sums of the epsilons and of the deltas."""
    return sum(one.epsilon or 0.0 for one in spent), sum(one.delta or 0.0 for one in spent)


def for_units(spent: Spending, column: str | None) -> Spending:
    """State for whom a promise holds when one record of each unit was kept."""
    if column is None or spent.epsilon is None or spent.unit != "record":
        return spent
    kept = (
        f" One record of each '{column}' was kept at each site, so it holds for each '{column}' at each site; for one "
        "with records at k sites, epsilon is k times as large."
    )
    return replace(spent, statement=spent.statement + kept)


def smallest_count(privacy: Privacy, min_count: int) -> int | None:
    """The smallest count that published tables may show, apart from 0; None where noise protects, or if it is 1."""
    if min_count < 1:
        raise InputError(f"Expected a min_count of at least 1, found {min_count}.")
    return None if privacy.private or min_count == 1 else min_count


def as_published(spent: Spending, numbers: int, min_count: int | None) -> Spending:
    """State what the server saw of exact counts, where published tables show less of them."""
    if min_count is None:
        return spent
    told = (
        f" Published tables and figures show no count from 1 to {min_count - 1}: neighbouring cells are merged until "
        f"none is left, after all metrics are computed. The server itself saw {numbers} exact sums, before any merging."
    )
    return replace(spent, statement=spent.statement + told)


def as_simulation(spent: Spending) -> Spending:
    """Mark spending as that of a simulation, which protects nobody."""
    if spent.simulation:
        return spent
    return replace(spent, simulation=True, statement=f"{_MARK}{spent.statement}")


def with_repeats(total: Spending, repeats: float) -> Spending:
    """A total with what queries cost that were sent again; a ledger debits each of these when it is sent."""
    if total.epsilon is None or not repeats > 0:
        return total
    epsilon = total.epsilon + repeats
    note = "Queries were sent again because no answer had arrived; every query that is sent counts as spent, so the "
    return replace(
        total, epsilon=epsilon, statement=f"{total.statement} {note}total that was debited is epsilon = {epsilon:.6g}."
    )


def _statement(calibration: Spending, epsilon: float, delta: float, parallel: bool) -> str:
    total = f"epsilon = {epsilon:.6g}" + (f", delta = {delta:.6g}" if delta else "")
    why = (
        f"each {calibration.unit} was used for fitting or for measuring, never for both, so the total is the larger of "
        "the two, not the sum"
        if parallel
        else f"a {calibration.unit} may have been used for fitting and for measuring, so both are added"
    )
    mark = _MARK if calibration.simulation else ""
    alone = calibration.statement.removeprefix(_MARK)
    return f"{mark}In total, measurements included: {total}; {why}. Of the calibration alone: {alone}"
