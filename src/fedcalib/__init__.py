"""Calibrated, trustworthy probabilities from data that cannot be pooled.

Names come when they are first used, so that importing the package costs little more than importing numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcalib.answer import Answer as Answer
    from fedcalib.artifacts.calibrator import Calibrator as Calibrator
    from fedcalib.artifacts.calibrator import Identity as Identity
    from fedcalib.artifacts.chain import Chain as Chain
    from fedcalib.artifacts.guard import KeepTop as KeepTop
    from fedcalib.artifacts.label_shift import LabelShares as LabelShares
    from fedcalib.artifacts.label_shift import LabelShift as LabelShift
    from fedcalib.artifacts.logit_offsets import LogitOffsets as LogitOffsets
    from fedcalib.artifacts.logit_shifts import LogitShifts as LogitShifts
    from fedcalib.artifacts.saving import load as load
    from fedcalib.audit.mechanisms import audit_mechanism as audit_mechanism
    from fedcalib.audit.models import audit_model as audit_model
    from fedcalib.audit.result import Audit as Audit
    from fedcalib.audit.runs import audit_run as audit_run
    from fedcalib.axes import EvenLogOdds as EvenLogOdds
    from fedcalib.axes import EvenProbability as EvenProbability
    from fedcalib.cohort import Cohort as Cohort
    from fedcalib.cohort import Disjoint as Disjoint
    from fedcalib.cohort import Everyone as Everyone
    from fedcalib.cohort import Poisson as Poisson
    from fedcalib.federation import Federation as Federation
    from fedcalib.flows.search import Bisection as Bisection
    from fedcalib.flows.search import GoldenSection as GoldenSection
    from fedcalib.flows.search import GridSearch as GridSearch
    from fedcalib.flows.search import Interpolation as Interpolation
    from fedcalib.flows.search import OnMagnitude as OnMagnitude
    from fedcalib.io import read as read
    from fedcalib.ledger import Ledger as Ledger
    from fedcalib.loop import Result as Result
    from fedcalib.loop import Runtime as Runtime
    from fedcalib.loop import run as run
    from fedcalib.method import Budget as Budget
    from fedcalib.method import Flow as Flow
    from fedcalib.method import Method as Method
    from fedcalib.method import Plan as Plan
    from fedcalib.methods.acc_t import AccT as AccT
    from fedcalib.methods.auto import Auto as Auto
    from fedcalib.methods.averaged import Averaged as Averaged
    from fedcalib.methods.bbse import BBSE as BBSE
    from fedcalib.methods.bbse import ConfusionOf as ConfusionOf
    from fedcalib.methods.beta_scaling import BetaScaling as BetaScaling
    from fedcalib.methods.binary_bbq import BinaryBBQ as BinaryBBQ
    from fedcalib.methods.bounded_temperature import BoundedTemperature as BoundedTemperature
    from fedcalib.methods.cbpe import CBPE as CBPE
    from fedcalib.methods.ccvr import CCVR as CCVR
    from fedcalib.methods.ccvr import FeatureGaussians as FeatureGaussians
    from fedcalib.methods.class_shares import ClassShares as ClassShares
    from fedcalib.methods.class_shifts import ClassShifts as ClassShifts
    from fedcalib.methods.compare_models import CompareModels as CompareModels
    from fedcalib.methods.domain_temperatures import DomainTemperatures as DomainTemperatures
    from fedcalib.methods.ece_t import ECET as ECET
    from fedcalib.methods.fed_avg import FedAvg as FedAvg
    from fedcalib.methods.fed_bbq import FedBBQ as FedBBQ
    from fedcalib.methods.fed_bin import FedBin as FedBin
    from fedcalib.methods.fed_scaling import FedCal as FedCal
    from fedcalib.methods.fed_scaling import FedMatrix as FedMatrix
    from fedcalib.methods.fed_scaling import FedOPVector as FedOPVector
    from fedcalib.methods.fed_scaling import FedTemp as FedTemp
    from fedcalib.methods.fed_scaling import FedVector as FedVector
    from fedcalib.methods.federated_metrics import FederatedMetrics as FederatedMetrics
    from fedcalib.methods.fit_and_measure import FitAndMeasure as FitAndMeasure
    from fedcalib.methods.fl_swag import FLSWAG as FLSWAG
    from fedcalib.methods.gradient_scaling import RidgeOPVector as RidgeOPVector
    from fedcalib.methods.gradient_scaling import RidgeVector as RidgeVector
    from fedcalib.methods.isotonic_buckets import IsotonicBuckets as IsotonicBuckets
    from fedcalib.methods.nll_t import NLLT as NLLT
    from fedcalib.methods.one_shot_temperature import OneShotTemperature as OneShotTemperature
    from fedcalib.methods.per_client_ece import PerClientECE as PerClientECE
    from fedcalib.methods.pipeline import Pipeline as Pipeline
    from fedcalib.methods.platt import PlattScaling as PlattScaling
    from fedcalib.methods.quantile_binning import QuantileBinning as QuantileBinning
    from fedcalib.methods.residual_binning import ClassWise as ClassWise
    from fedcalib.methods.residual_binning import Pooled as Pooled
    from fedcalib.methods.residual_binning import ResidualBinning as ResidualBinning
    from fedcalib.methods.residual_binning import TwoLevel as TwoLevel
    from fedcalib.methods.score_curves import ScoreCurves as ScoreCurves
    from fedcalib.methods.source_binning import SourceBinning as SourceBinning
    from fedcalib.methods.together import Together as Together
    from fedcalib.methods.weighting import Doubting as Doubting
    from fedcalib.methods.weighting import Unweighted as Unweighted
    from fedcalib.methods.weighting import Weighted as Weighted
    from fedcalib.monitoring import Monitor as Monitor
    from fedcalib.normalisers import ByOdds as ByOdds
    from fedcalib.normalisers import ByScale as ByScale
    from fedcalib.planning.score_model import ScoreModel as ScoreModel
    from fedcalib.planning.study import Study as Study
    from fedcalib.planning.suited import suited_tree as suited_tree
    from fedcalib.privacy.distributed import DistributedDP as DistributedDP
    from fedcalib.privacy.local import LocalDP as LocalDP
    from fedcalib.privacy.model import Mechanism as Mechanism
    from fedcalib.privacy.model import Privacy as Privacy
    from fedcalib.privacy.open import Open as Open
    from fedcalib.privacy.secagg import SecAgg as SecAgg
    from fedcalib.privacy.source_laplace import SourceLaplace as SourceLaplace
    from fedcalib.privacy.user_gaussian import UserGaussian as UserGaussian
    from fedcalib.queries.score_tree import ScoreTree as ScoreTree
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
    from fedcalib.runtimes.flower import Flower as Flower
    from fedcalib.runtimes.in_process import InProcess as InProcess
    from fedcalib.runtimes.replay import Replay as Replay
    from fedcalib.transcript import Transcript as Transcript

__version__ = "0.1.0"

_HOME = {
    "AccT": "methods.acc_t",
    "Answer": "answer",
    "Audit": "audit.result",
    "Auto": "methods.auto",
    "Averaged": "methods.averaged",
    "BBSE": "methods.bbse",
    "BetaScaling": "methods.beta_scaling",
    "BinaryBBQ": "methods.binary_bbq",
    "Bisection": "flows.search",
    "Block": "query",
    "Bound": "query",
    "BoundedTemperature": "methods.bounded_temperature",
    "Budget": "method",
    "ByOdds": "normalisers",
    "ByScale": "normalisers",
    "CBPE": "methods.cbpe",
    "CCVR": "methods.ccvr",
    "Calibrator": "artifacts.calibrator",
    "Chain": "artifacts.chain",
    "ClassShares": "methods.class_shares",
    "ClassShifts": "methods.class_shifts",
    "ClassWise": "methods.residual_binning",
    "ClientQuery": "query",
    "Cohort": "cohort",
    "CompareModels": "methods.compare_models",
    "ConfusionOf": "methods.bbse",
    "Disjoint": "cohort",
    "DistributedDP": "privacy.distributed",
    "DomainTemperatures": "methods.domain_temperatures",
    "Doubting": "methods.weighting",
    "ECET": "methods.ece_t",
    "EvenLogOdds": "axes",
    "EvenProbability": "axes",
    "Everyone": "cohort",
    "FLSWAG": "methods.fl_swag",
    "FeatureGaussians": "methods.ccvr",
    "FedAvg": "methods.fed_avg",
    "FedBBQ": "methods.fed_bbq",
    "FedBin": "methods.fed_bin",
    "FedCal": "methods.fed_scaling",
    "FedMatrix": "methods.fed_scaling",
    "FedOPVector": "methods.fed_scaling",
    "FedTemp": "methods.fed_scaling",
    "FedVector": "methods.fed_scaling",
    "FederatedMetrics": "methods.federated_metrics",
    "Federation": "federation",
    "FitAndMeasure": "methods.fit_and_measure",
    "Flow": "method",
    "Flower": "runtimes.flower",
    "GoldenSection": "flows.search",
    "GridSearch": "flows.search",
    "Identity": "artifacts.calibrator",
    "InProcess": "runtimes.in_process",
    "Interpolation": "flows.search",
    "IsotonicBuckets": "methods.isotonic_buckets",
    "Join": "query",
    "KeepTop": "artifacts.guard",
    "LabelShares": "artifacts.label_shift",
    "LabelShift": "artifacts.label_shift",
    "Ledger": "ledger",
    "LocalDP": "privacy.local",
    "LogitOffsets": "artifacts.logit_offsets",
    "LogitShifts": "artifacts.logit_shifts",
    "Mechanism": "privacy.model",
    "Method": "method",
    "Monitor": "monitoring",
    "NLLT": "methods.nll_t",
    "OnMagnitude": "flows.search",
    "OneShotTemperature": "methods.one_shot_temperature",
    "Open": "privacy.open",
    "PerClientECE": "methods.per_client_ece",
    "Pipeline": "methods.pipeline",
    "Plan": "method",
    "PlattScaling": "methods.platt",
    "Poisson": "cohort",
    "Pooled": "methods.residual_binning",
    "Privacy": "privacy.model",
    "QuantileBinning": "methods.quantile_binning",
    "Query": "query",
    "RecordQuery": "query",
    "Records": "records",
    "Replay": "runtimes.replay",
    "ResidualBinning": "methods.residual_binning",
    "Result": "loop",
    "RidgeOPVector": "methods.gradient_scaling",
    "RidgeVector": "methods.gradient_scaling",
    "Rows": "query",
    "Runtime": "loop",
    "Schema": "records",
    "ScoreCurves": "methods.score_curves",
    "ScoreModel": "planning.score_model",
    "ScoreTree": "queries.score_tree",
    "SecAgg": "privacy.secagg",
    "Secure": "randomness",
    "Simulated": "randomness",
    "SourceBinning": "methods.source_binning",
    "SourceLaplace": "privacy.source_laplace",
    "Study": "planning.study",
    "Together": "methods.together",
    "Transcript": "transcript",
    "TwoLevel": "methods.residual_binning",
    "Unweighted": "methods.weighting",
    "UserGaussian": "privacy.user_gaussian",
    "Weighted": "methods.weighting",
    "audit_mechanism": "audit.mechanisms",
    "audit_model": "audit.models",
    "audit_run": "audit.runs",
    "load": "artifacts.saving",
    "read": "io",
    "run": "loop",
    "suited_tree": "planning.suited",
}

__all__ = [*_HOME]  # noqa: PLE0604 - one list, the keys above


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedcalib' has no attribute {name!r}")
    value = getattr(import_module(f"fedcalib.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
