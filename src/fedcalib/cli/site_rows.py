"""Site by site, before and after a calibrator, where nothing is hidden."""

from __future__ import annotations

from typing import Final

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.metrics_report import MetricsReport
from fedcalib.cohort import FEWEST_RECORDS
from fedcalib.federation import Federation
from fedcalib.loop import run
from fedcalib.measured import Measured
from fedcalib.methods.federated_metrics import FederatedMetrics
from fedcalib.privacy.model import Privacy
from fedcalib.privacy.open import Open
from fedcalib.records import Records
from fedcalib.report.values import SiteRow
from fedcalib.runtimes.in_process import InProcess

MOST: Final = 1000  # sites in one report


def site_rows(held: Federation | None, calibrator: Calibrator, model: Privacy) -> tuple[SiteRow, ...]:
    """Give each site's calibration error before and after; none where the model hides single sites."""
    if held is None or not isinstance(model, Open) or len(held) > MOST:
        return ()
    return tuple(_row(held.name(k), held.client(k), calibrator) for k in range(len(held)))


def _row(name: str, records: Records, calibrator: Calibrator) -> SiteRow:
    if len(records) < FEWEST_RECORDS:
        return SiteRow(name, too_few=True)
    return SiteRow(name, _ece(records), _ece(calibrator.over(records)), len(records))


def _ece(records: Records) -> Measured | None:
    report: MetricsReport = run(FederatedMetrics(), InProcess(Federation.of([records])), Open()).artifact
    return report.ece
