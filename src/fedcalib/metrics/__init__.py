"""Exact metrics over pooled records: the reference that every federated metric is tested against.

Arrays go in, floats and small frozen dataclasses come out. Multiclass metrics take probabilities (n, classes) and
integer labels (n,); the metrics of a binary score take scores (n,) in [0, 1] and 0/1 labels (n,).
"""

from __future__ import annotations

# isort: off
from fedcalib.metrics.calibration_line import (
    CalibrationLine, calibration_line, ici, observed_expected, observed_expected_interval, smooth_distances,
)  # fmt: skip
from fedcalib.metrics.classes import (
    ClassTable, class_aucs, class_table, cut_nll, log_loss_cut, macro_auc, macro_f1, weighted_f1,
)  # fmt: skip
from fedcalib.metrics.intervals import (
    Band, Interval, Measured, clopper_pearson, mean_interval, normal_quantile, proportion_interval, wilson,
)  # fmt: skip
from fedcalib.metrics.losses import (
    accuracy, accuracy_interval, binary_brier, binary_nll, brier, brier_interval, brier_losses, hits, nll,
    nll_interval, nll_losses, scaled_brier, top_label,
)  # fmt: skip
from fedcalib.metrics.ranking import (
    PrCurve, RocCurve, ScoreCounts, ThresholdCounts, auc_bucket_bound, auc_of_counts, auc_variance, average_precision,
    confusion, net_benefit, pr_curve, roc_auc, roc_auc_interval, roc_curve,
)  # fmt: skip
from fedcalib.metrics.reliability import (
    Reliability, binary_ece, classwise_ece, debiased_squared_binary_ece, debiased_squared_classwise_ece,
    debiased_squared_ece, ece, ece_interval, gap_box, project_box,
)  # fmt: skip
from fedcalib.metrics.smooth_ece import binary_smooth_ece, residual_histogram, smooth_ece, smooth_ece_of_residuals
# isort: on

__all__ = [
    "Band", "CalibrationLine", "ClassTable", "Interval", "Measured", "PrCurve", "Reliability", "RocCurve",
    "ScoreCounts", "ThresholdCounts", "accuracy", "accuracy_interval", "auc_bucket_bound", "auc_of_counts",
    "auc_variance", "average_precision", "binary_brier", "binary_ece", "binary_nll", "binary_smooth_ece", "brier",
    "brier_interval", "brier_losses", "calibration_line", "class_aucs", "class_table", "classwise_ece",
    "clopper_pearson", "confusion", "cut_nll", "debiased_squared_binary_ece", "debiased_squared_classwise_ece",
    "debiased_squared_ece", "ece", "ece_interval", "gap_box", "hits", "ici", "log_loss_cut", "macro_auc", "macro_f1",
    "mean_interval", "net_benefit", "nll", "nll_interval", "nll_losses", "normal_quantile", "observed_expected",
    "observed_expected_interval", "pr_curve", "project_box", "proportion_interval", "residual_histogram", "roc_auc",
    "roc_auc_interval", "roc_curve", "scaled_brier", "smooth_distances", "smooth_ece", "smooth_ece_of_residuals",
    "top_label", "weighted_f1", "wilson",
]  # fmt: skip
