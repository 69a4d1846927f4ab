"""Artifacts: the results of methods, such as calibrators and metrics.

An artifact is a small frozen dataclass that needs numpy only, and can be saved as a JSON file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcalib.artifacts.saving import Artifact as Artifact
from fedcalib.artifacts.saving import load as load
from fedcalib.registry import exports

if TYPE_CHECKING:
    from fedcalib.artifacts.calibrator import Chain as Chain
    from fedcalib.artifacts.calibrator import Identity as Identity
    from fedcalib.artifacts.calibrator import KeepTop as KeepTop
    from fedcalib.artifacts.calibrator import Mixture as Mixture
    from fedcalib.artifacts.evaluation import ClientErrors as ClientErrors
    from fedcalib.artifacts.evaluation import Comparison as Comparison
    from fedcalib.artifacts.evaluation import Confusion as Confusion
    from fedcalib.artifacts.evaluation import Curves as Curves
    from fedcalib.artifacts.evaluation import Fitted as Fitted
    from fedcalib.artifacts.evaluation import MetricsReport as MetricsReport
    from fedcalib.artifacts.evaluation import Review as Review
    from fedcalib.artifacts.gaussians import ClassGaussians as ClassGaussians
    from fedcalib.artifacts.gaussians import WeightPosterior as WeightPosterior
    from fedcalib.artifacts.logit_shifts import LabelShares as LabelShares
    from fedcalib.artifacts.logit_shifts import LabelShift as LabelShift
    from fedcalib.artifacts.logit_shifts import LogitOffsets as LogitOffsets
    from fedcalib.artifacts.logit_shifts import LogitShifts as LogitShifts
    from fedcalib.artifacts.networks import Ensemble as Ensemble
    from fedcalib.artifacts.networks import Head as Head
    from fedcalib.artifacts.networks import Representation as Representation
    from fedcalib.artifacts.networks import Trained as Trained
    from fedcalib.artifacts.saving import Artifact as Artifact
    from fedcalib.artifacts.scaling import Beta as Beta
    from fedcalib.artifacts.scaling import MatrixScaling as MatrixScaling
    from fedcalib.artifacts.scaling import OrderPreservingNetwork as OrderPreservingNetwork
    from fedcalib.artifacts.scaling import OrderPreservingVector as OrderPreservingVector
    from fedcalib.artifacts.scaling import Platt as Platt
    from fedcalib.artifacts.scaling import Temperature as Temperature
    from fedcalib.artifacts.scaling import TemperatureByDomain as TemperatureByDomain
    from fedcalib.artifacts.scaling import VectorScaling as VectorScaling
    from fedcalib.artifacts.steps import Blend as Blend
    from fedcalib.artifacts.steps import EdgeSteps as EdgeSteps
    from fedcalib.artifacts.steps import Steps as Steps
    from fedcalib.artifacts.steps import TopLabelSteps as TopLabelSteps

if not TYPE_CHECKING:
    __getattr__, __all__, __dir__ = exports(__name__)
