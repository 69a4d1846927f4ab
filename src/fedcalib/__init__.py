"""Calibrated, trustworthy probabilities from data that cannot be pooled.

Names come when they are first used, so that importing the package costs little more than importing numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcalib.registry import exports

if TYPE_CHECKING:
    from fedcalib import artifacts as artifacts
    from fedcalib import audit as audit
    from fedcalib import cohort as cohort
    from fedcalib import data as data
    from fedcalib import datasets as datasets
    from fedcalib import errors as errors
    from fedcalib import method as method
    from fedcalib import methods as methods
    from fedcalib import metrics as metrics
    from fedcalib import planning as planning
    from fedcalib import privacy as privacy
    from fedcalib import query as query
    from fedcalib import registry as registry
    from fedcalib import runtimes as runtimes
    from fedcalib import search as search
    from fedcalib import training as training
    from fedcalib import workflows as workflows
    from fedcalib.accounting.ledger import Ledger as Ledger
    from fedcalib.artifacts.calibrator import Calibrator as Calibrator
    from fedcalib.artifacts.saving import load as load
    from fedcalib.cohort import Disjoint as Disjoint
    from fedcalib.cohort import Everyone as Everyone
    from fedcalib.cohort import Poisson as Poisson
    from fedcalib.data import read as read
    from fedcalib.deploy.flower import Flower as Flower
    from fedcalib.federation import Federation as Federation
    from fedcalib.loop import Result as Result
    from fedcalib.loop import run as run
    from fedcalib.method import Method as Method
    from fedcalib.methods.auto import Auto as Auto
    from fedcalib.methods.bbse import BBSE as BBSE
    from fedcalib.methods.compare_models import CompareModels as CompareModels
    from fedcalib.methods.domain_shift import AccT as AccT
    from fedcalib.methods.evaluation import FederatedMetrics as FederatedMetrics
    from fedcalib.methods.evaluation import PerClientECE as PerClientECE
    from fedcalib.methods.evaluation import ScoreCurves as ScoreCurves
    from fedcalib.methods.fed_bbq import FedBBQ as FedBBQ
    from fedcalib.methods.fed_bin import FedBin as FedBin
    from fedcalib.methods.fed_scaling import FedCal as FedCal
    from fedcalib.methods.fed_scaling import FedMatrix as FedMatrix
    from fedcalib.methods.fed_scaling import FedOPVector as FedOPVector
    from fedcalib.methods.fed_scaling import FedTemp as FedTemp
    from fedcalib.methods.fed_scaling import FedVector as FedVector
    from fedcalib.methods.platt import PlattScaling as PlattScaling
    from fedcalib.methods.score_binning import BinaryBBQ as BinaryBBQ
    from fedcalib.methods.score_binning import IsotonicBuckets as IsotonicBuckets
    from fedcalib.methods.score_binning import QuantileBinning as QuantileBinning
    from fedcalib.methods.temperature import BoundedTemperature as BoundedTemperature
    from fedcalib.methods.temperature import OneShotTemperature as OneShotTemperature
    from fedcalib.privacy.distributed import DistributedDP as DistributedDP
    from fedcalib.privacy.local import LocalDP as LocalDP
    from fedcalib.privacy.open import Open as Open
    from fedcalib.privacy.secagg import SecAgg as SecAgg
    from fedcalib.privacy.source_laplace import SourceLaplace as SourceLaplace
    from fedcalib.privacy.user_gaussian import UserGaussian as UserGaussian
    from fedcalib.randomness import Secure as Secure
    from fedcalib.randomness import Simulated as Simulated
    from fedcalib.records import Records as Records
    from fedcalib.records import Schema as Schema
    from fedcalib.runtimes import InProcess as InProcess
    from fedcalib.runtimes import Replay as Replay
    from fedcalib.transcript import Transcript as Transcript
    from fedcalib.workflows.calibration import calibrate as calibrate
    from fedcalib.workflows.comparison import compare as compare
    from fedcalib.workflows.drift import Monitor as Monitor
    from fedcalib.workflows.evaluation import evaluate as evaluate


__version__ = "0.1.0"

if not TYPE_CHECKING:
    __getattr__, __all__, __dir__ = exports(__name__)
