"""Which exit code an error becomes: the one place that knows."""

from __future__ import annotations

from typing import Final

from fedcalib.errors import (
    BudgetError,
    FedcalibError,
    InputError,
    LedgerError,
    PolicyError,
    RefusedError,
    TooFewClients,
    TranscriptError,
    WireError,
)

FINE: Final = 0
BUG: Final = 1
USAGE: Final = 2
BUDGET: Final = 3
REFUSED: Final = 4
INTERRUPTED: Final = 130

_CODES: Final[tuple[tuple[type[FedcalibError], int], ...]] = (
    (InputError, USAGE),
    (TranscriptError, USAGE),
    (WireError, USAGE),
    (LedgerError, USAGE),
    (BudgetError, BUDGET),
    (RefusedError, REFUSED),
    (PolicyError, REFUSED),
    (TooFewClients, REFUSED),
)


def exit_code(error: BaseException) -> int:
    """Say with which code a command ends after an error; what is not listed is a bug of ours."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), BUG)
