"""Methods, one file each, named as in the literature, and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcalib.registry import exports

if TYPE_CHECKING:
    from fedcalib.artifacts.steps import ByOdds as ByOdds
    from fedcalib.artifacts.steps import ByScale as ByScale
    from fedcalib.flows.label_histogram import Doubting as Doubting
    from fedcalib.flows.label_histogram import Unweighted as Unweighted
    from fedcalib.flows.label_histogram import Weighted as Weighted
    from fedcalib.methods.bbse import CBPE as CBPE
    from fedcalib.methods.bbse import ClassShares as ClassShares
    from fedcalib.methods.bbse import ConfusionOf as ConfusionOf
    from fedcalib.methods.ccvr import CCVR as CCVR
    from fedcalib.methods.ccvr import ClosedForm as ClosedForm
    from fedcalib.methods.ccvr import FeatureGaussians as FeatureGaussians
    from fedcalib.methods.ccvr import Retrained as Retrained
    from fedcalib.methods.compose import Averaged as Averaged
    from fedcalib.methods.compose import FitAndMeasure as FitAndMeasure
    from fedcalib.methods.compose import Pipeline as Pipeline
    from fedcalib.methods.compose import Together as Together
    from fedcalib.methods.domain_shift import ECET as ECET
    from fedcalib.methods.domain_shift import NLLT as NLLT
    from fedcalib.methods.domain_shift import DomainTemperatures as DomainTemperatures
    from fedcalib.methods.domain_shift import SourceBinning as SourceBinning
    from fedcalib.methods.fed_avg import FedAvg as FedAvg
    from fedcalib.methods.fl_swag import FLSWAG as FLSWAG
    from fedcalib.methods.platt import BetaScaling as BetaScaling
    from fedcalib.methods.residual_binning import ClassShifts as ClassShifts
    from fedcalib.methods.residual_binning import ClassWise as ClassWise
    from fedcalib.methods.residual_binning import Pooled as Pooled
    from fedcalib.methods.residual_binning import ResidualBinning as ResidualBinning
    from fedcalib.methods.residual_binning import TwoLevel as TwoLevel
    from fedcalib.methods.ridge_scaling import RidgeOPVector as RidgeOPVector
    from fedcalib.methods.ridge_scaling import RidgeVector as RidgeVector
    from fedcalib.metrics.binning import EvenLogOdds as EvenLogOdds
    from fedcalib.metrics.binning import EvenProbability as EvenProbability
    from fedcalib.queries.scores import ScoreTree as ScoreTree

if not TYPE_CHECKING:
    __getattr__, __all__, __dir__ = exports(__name__)
