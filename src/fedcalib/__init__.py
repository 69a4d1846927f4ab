"""Calibrated, trustworthy probabilities from data that cannot be pooled.

Names come when they are first used, so that importing the package costs little more than importing numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcalib.registry import exports

if TYPE_CHECKING:
    from fedcalib.accounting.ledger import Ledger as Ledger
    from fedcalib.answer import Answer as Answer
    from fedcalib.artifacts import load as load
    from fedcalib.artifacts.calibrator import Calibrator as Calibrator
    from fedcalib.artifacts.calibrator import Chain as Chain
    from fedcalib.artifacts.calibrator import Identity as Identity
    from fedcalib.artifacts.calibrator import KeepTop as KeepTop
    from fedcalib.artifacts.logit_shifts import LabelShares as LabelShares
    from fedcalib.artifacts.logit_shifts import LabelShift as LabelShift
    from fedcalib.artifacts.logit_shifts import LogitOffsets as LogitOffsets
    from fedcalib.artifacts.logit_shifts import LogitShifts as LogitShifts
    from fedcalib.artifacts.steps import ByOdds as ByOdds
    from fedcalib.artifacts.steps import ByScale as ByScale
    from fedcalib.audit.evidence import Audit as Audit
    from fedcalib.audit.mechanisms import audit_mechanism as audit_mechanism
    from fedcalib.audit.runs import audit_model as audit_model
    from fedcalib.audit.runs import audit_run as audit_run
    from fedcalib.cohort import Cohort as Cohort
    from fedcalib.cohort import Disjoint as Disjoint
    from fedcalib.cohort import Everyone as Everyone
    from fedcalib.cohort import Poisson as Poisson
    from fedcalib.data import read as read
    from fedcalib.deploy.flower import Flower as Flower
    from fedcalib.federation import Federation as Federation
    from fedcalib.flows.label_histogram import Doubting as Doubting
    from fedcalib.flows.label_histogram import Unweighted as Unweighted
    from fedcalib.flows.label_histogram import Weighted as Weighted
    from fedcalib.loop import Result as Result
    from fedcalib.loop import Runtime as Runtime
    from fedcalib.loop import run as run
    from fedcalib.method import Budget as Budget
    from fedcalib.method import Flow as Flow
    from fedcalib.method import Method as Method
    from fedcalib.method import Plan as Plan
    from fedcalib.methods.auto import Auto as Auto
    from fedcalib.methods.bbse import BBSE as BBSE
    from fedcalib.methods.bbse import CBPE as CBPE
    from fedcalib.methods.bbse import ClassShares as ClassShares
    from fedcalib.methods.bbse import ConfusionOf as ConfusionOf
    from fedcalib.methods.ccvr import CCVR as CCVR
    from fedcalib.methods.ccvr import FeatureGaussians as FeatureGaussians
    from fedcalib.methods.compare_models import CompareModels as CompareModels
    from fedcalib.methods.compose import Averaged as Averaged
    from fedcalib.methods.compose import FitAndMeasure as FitAndMeasure
    from fedcalib.methods.compose import Pipeline as Pipeline
    from fedcalib.methods.compose import Together as Together
    from fedcalib.methods.domain_shift import ECET as ECET
    from fedcalib.methods.domain_shift import NLLT as NLLT
    from fedcalib.methods.domain_shift import AccT as AccT
    from fedcalib.methods.domain_shift import DomainTemperatures as DomainTemperatures
    from fedcalib.methods.domain_shift import SourceBinning as SourceBinning
    from fedcalib.methods.evaluation import FederatedMetrics as FederatedMetrics
    from fedcalib.methods.evaluation import PerClientECE as PerClientECE
    from fedcalib.methods.evaluation import ScoreCurves as ScoreCurves
    from fedcalib.methods.fed_avg import FedAvg as FedAvg
    from fedcalib.methods.fed_bbq import FedBBQ as FedBBQ
    from fedcalib.methods.fed_bin import FedBin as FedBin
    from fedcalib.methods.fed_scaling import FedCal as FedCal
    from fedcalib.methods.fed_scaling import FedMatrix as FedMatrix
    from fedcalib.methods.fed_scaling import FedOPVector as FedOPVector
    from fedcalib.methods.fed_scaling import FedTemp as FedTemp
    from fedcalib.methods.fed_scaling import FedVector as FedVector
    from fedcalib.methods.fl_swag import FLSWAG as FLSWAG
    from fedcalib.methods.platt import BetaScaling as BetaScaling
    from fedcalib.methods.platt import PlattScaling as PlattScaling
    from fedcalib.methods.residual_binning import ClassShifts as ClassShifts
    from fedcalib.methods.residual_binning import ClassWise as ClassWise
    from fedcalib.methods.residual_binning import Pooled as Pooled
    from fedcalib.methods.residual_binning import ResidualBinning as ResidualBinning
    from fedcalib.methods.residual_binning import TwoLevel as TwoLevel
    from fedcalib.methods.ridge_scaling import RidgeOPVector as RidgeOPVector
    from fedcalib.methods.ridge_scaling import RidgeVector as RidgeVector
    from fedcalib.methods.score_binning import BinaryBBQ as BinaryBBQ
    from fedcalib.methods.score_binning import IsotonicBuckets as IsotonicBuckets
    from fedcalib.methods.score_binning import QuantileBinning as QuantileBinning
    from fedcalib.methods.temperature import BoundedTemperature as BoundedTemperature
    from fedcalib.methods.temperature import OneShotTemperature as OneShotTemperature
    from fedcalib.metrics.binning import EvenLogOdds as EvenLogOdds
    from fedcalib.metrics.binning import EvenProbability as EvenProbability
    from fedcalib.planning import Study as Study
    from fedcalib.planning import suited_tree as suited_tree
    from fedcalib.planning.simulation import ScoreModel as ScoreModel
    from fedcalib.privacy import Mechanism as Mechanism
    from fedcalib.privacy import Privacy as Privacy
    from fedcalib.privacy.distributed import DistributedDP as DistributedDP
    from fedcalib.privacy.local import LocalDP as LocalDP
    from fedcalib.privacy.open import Open as Open
    from fedcalib.privacy.secagg import SecAgg as SecAgg
    from fedcalib.privacy.source_laplace import SourceLaplace as SourceLaplace
    from fedcalib.privacy.user_gaussian import UserGaussian as UserGaussian
    from fedcalib.queries.scores import ScoreTree as ScoreTree
    from fedcalib.query import Block as Block
    from fedcalib.query import Bound as Bound
    from fedcalib.query import ClientQuery as ClientQuery
    from fedcalib.query import Join as Join
    from fedcalib.query import Query as Query
    from fedcalib.query import RecordQuery as RecordQuery
    from fedcalib.query import Rows as Rows
    from fedcalib.randomness import Secure as Secure
    from fedcalib.randomness import Simulated as Simulated
    from fedcalib.records import Records as Records
    from fedcalib.records import Schema as Schema
    from fedcalib.runtimes import InProcess as InProcess
    from fedcalib.runtimes import Replay as Replay
    from fedcalib.search import Bisection as Bisection
    from fedcalib.search import GoldenSection as GoldenSection
    from fedcalib.search import GridSearch as GridSearch
    from fedcalib.search import Interpolation as Interpolation
    from fedcalib.search import OnMagnitude as OnMagnitude
    from fedcalib.transcript import Transcript as Transcript
    from fedcalib.workflows.monitor import Monitor as Monitor


__version__ = "0.1.0"

if not TYPE_CHECKING:
    __getattr__, __all__, __dir__ = exports(__name__)
