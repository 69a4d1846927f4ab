"""Every type that may cross the wire, by name.

The list is explicit, because registries filled at import time are empty in a worker process. A name maps to the
module that defines it; the module is imported when the name is first met. A site that brings its own query or
network registers it with `register` in its own process: code never travels.
"""

from __future__ import annotations

from importlib import import_module

from fedcalib.errors import WireError

_HOME = {
    # vocabulary
    "Bound": "query",
    "Block": "query",
    "Join": "query",
    "Cohort": "cohort",
    "Everyone": "cohort",
    "Poisson": "cohort",
    "Disjoint": "cohort",
    "Spending": "accounting.spending",
    # queries
    "LabelHistogram": "queries.class_tables",
    "LabelCounts": "queries.class_tables",
    "TopLabelTable": "queries.reliability",
    "ClasswiseResiduals": "queries.reliability",
    "Hits": "queries.reliability",
    "Losses": "queries.reliability",
    "ScoreGaps": "queries.reliability",
    "ScoreHistogram": "queries.reliability",
    "TemperatureCurve": "queries.temperature",
    "TemperatureSlope": "queries.temperature",
    "TemperatureScores": "queries.temperature",
    "Clipped": "queries.wrapped",
    "NormHistogram": "queries.wrapped",
    "ScoreTree": "queries.scores",
    "ScoreLeaves": "queries.scores",
    "LogitResiduals": "queries.class_tables",
    "ClassCurvature": "queries.class_tables",
    "Calibrated": "queries.wrapped",
    "ScalingGradient": "queries.scaling",
    "ClassCounts": "methods.bbse",
    "OwnErrors": "queries.reliability",
    "LocalFit": "queries.scaling",
    "TemperatureFamily": "families.affine",
    "VectorFamily": "families.affine",
    "MatrixFamily": "families.affine",
    "OrderPreservingVectorFamily": "families.order_preserving",
    "OrderPreservingNetworkFamily": "families.order_preserving",
    "ConfidenceGaps": "queries.shift",
    "ClippedLosses": "queries.shift",
    "BinnedGaps": "queries.shift",
    "RightWrong": "queries.shift",
    "Confidence": "queries.shift",
    "Predictions": "queries.shift",
    "ConfusionCounts": "queries.shift",
    "DomainGaps": "methods.domain_shift",
    "ScoreBuckets": "queries.scores",
    "PairedBuckets": "queries.scores",
    "LocalUpdate": "queries.training",
    "LocalTraining": "training.local",
    "SGD": "training.local",
    "Adam": "training.local",
    "SoftmaxRegression": "training.network",
    "ConvNet": "training.torch_networks",
    "LeNet5": "training.torch_networks",
    "ResNet18": "training.torch_networks",
    "CharLSTM": "training.torch_networks",
    "OwnNetwork": "training.torch_networks",
    "UnitHead": "training.torch_networks",
    "ClassMoments": "queries.moments",
    "LocalPosterior": "queries.training",
    "Trajectory": "training.posterior",
    "Curvature": "training.posterior",
    # mechanisms
    "Exact": "privacy.open",
    "FixedPoint": "privacy.secagg",
    "PolyaShares": "privacy.distributed",
    "GaussianShares": "privacy.distributed",
    "ClippedGaussian": "privacy.user_gaussian",
    "LaplaceTerms": "privacy.source_laplace",
    "RandomisedReports": "privacy.local",
    "Coder": "privacy.local",
    "Cell": "privacy.local_reports",
    "SignedCell": "privacy.local_reports",
    "Coordinate": "privacy.local_reports",
    "Unary": "privacy.local_reports",
    "RandomSymbol": "privacy.local_reports",
    "FlippedSign": "privacy.local_reports",
    # privacy models
    "Open": "privacy.open",
    "SecAgg": "privacy.secagg",
    "DistributedDP": "privacy.distributed",
    "LocalDP": "privacy.local",
    "SourceLaplace": "privacy.source_laplace",
    "UserGaussian": "privacy.user_gaussian",
    # methods
    "Together": "methods.compose",
    "FedBin": "methods.fed_bin",
    "FedBBQ": "methods.fed_bbq",
    "FedTemp": "methods.fed_scaling",
    "FedVector": "methods.fed_scaling",
    "FedMatrix": "methods.fed_scaling",
    "FedOPVector": "methods.fed_scaling",
    "FedCal": "methods.fed_scaling",
    "ResidualBinning": "methods.residual_binning",
    "ClassShifts": "methods.residual_binning",
    "ClassWise": "methods.residual_binning",
    "Pooled": "methods.residual_binning",
    "TwoLevel": "methods.residual_binning",
    "RidgeVector": "methods.ridge_scaling",
    "RidgeOPVector": "methods.ridge_scaling",
    "Pipeline": "methods.compose",
    "Auto": "methods.auto",
    "ClassShares": "methods.bbse",
    "EvenLogOdds": "metrics.binning",
    "EvenProbability": "metrics.binning",
    "ByOdds": "artifacts.steps",
    "ByScale": "artifacts.steps",
    "Unweighted": "flows.label_histogram",
    "Doubting": "flows.label_histogram",
    "Weighted": "flows.label_histogram",
    "OneShotTemperature": "methods.temperature",
    "BoundedTemperature": "methods.temperature",
    "Averaged": "methods.compose",
    "FederatedMetrics": "methods.evaluation",
    "PerClientECE": "methods.evaluation",
    "PlattScaling": "methods.platt",
    "AccT": "methods.domain_shift",
    "NLLT": "methods.domain_shift",
    "ECET": "methods.domain_shift",
    "SourceBinning": "methods.domain_shift",
    "CBPE": "methods.bbse",
    "BBSE": "methods.bbse",
    "ConfusionOf": "methods.bbse",
    "DomainTemperatures": "methods.domain_shift",
    "ReviewWindow": "methods.compare_models",
    "GoldenSection": "search",
    "GridSearch": "search",
    "OnMagnitude": "search",
    "Bisection": "search",
    "Interpolation": "search",
    "ScoreCurves": "methods.evaluation",
    "QuantileBinning": "methods.score_binning",
    "IsotonicBuckets": "methods.score_binning",
    "BinaryBBQ": "methods.score_binning",
    "BetaScaling": "methods.platt",
    "CompareModels": "methods.compare_models",
    "FedAvg": "methods.fed_avg",
    "CCVR": "methods.ccvr",
    "FeatureGaussians": "methods.ccvr",
    "Retrained": "methods.ccvr",
    "ClosedForm": "methods.ccvr",
    "FLSWAG": "methods.fl_swag",
    "FitAndMeasure": "methods.compose",
    # artifacts
    "Fitted": "artifacts.evaluation",
    "Trained": "artifacts.networks",
    "Ensemble": "artifacts.networks",
    "Head": "artifacts.networks",
    "Representation": "artifacts.networks",
    "ClassGaussians": "artifacts.gaussians",
    "WeightPosterior": "artifacts.gaussians",
    "TopLabelSteps": "artifacts.steps",
    "Confusion": "artifacts.evaluation",
    "TemperatureByDomain": "artifacts.scaling",
    "Mixture": "artifacts.calibrator",
    "Review": "artifacts.evaluation",
    "Identity": "artifacts.calibrator",
    "Steps": "artifacts.steps",
    "Blend": "artifacts.steps",
    "Chain": "artifacts.calibrator",
    "KeepTop": "artifacts.calibrator",
    "LogitOffsets": "artifacts.logit_shifts",
    "LogitShifts": "artifacts.logit_shifts",
    "LabelShift": "artifacts.logit_shifts",
    "LabelShares": "artifacts.logit_shifts",
    "VectorScaling": "artifacts.scaling",
    "MatrixScaling": "artifacts.scaling",
    "OrderPreservingVector": "artifacts.scaling",
    "OrderPreservingNetwork": "artifacts.scaling",
    "Temperature": "artifacts.scaling",
    "MetricsReport": "artifacts.evaluation",
    "ClientErrors": "artifacts.evaluation",
    "Measured": "metrics.intervals",
    "Reliability": "metrics.reliability",
    "Platt": "artifacts.scaling",
    "Beta": "artifacts.scaling",
    "Curves": "artifacts.evaluation",
    "ScoreTable": "estimation.score_table",
    "EdgeSteps": "artifacts.steps",
    "Comparison": "artifacts.evaluation",
}

_LOCAL: dict[str, type] = {}


def lookup(name: str) -> type:
    """Find a catalogued type by its name."""
    if name in _LOCAL:
        return _LOCAL[name]
    if name not in _HOME:
        raise WireError(f"Expected a catalogued type, found {name[:80]!r}; is this version older than the sender's?")
    found: type = getattr(import_module(f"fedcalib.{_HOME[name]}"), name)
    return found


def register(cls: type) -> type:
    """Add a type of your own to this process's catalogue; usable as a decorator."""
    if cls.__name__ in _HOME:
        raise WireError(f"Expected a new name, found {cls.__name__}, which is catalogued already.")
    _LOCAL[cls.__name__] = cls
    return cls


def names() -> tuple[str, ...]:
    """List every catalogued name."""
    return (*_HOME, *_LOCAL)


def homes() -> tuple[tuple[str, str], ...]:
    """List every name of the package's own catalogue with the module that defines it."""
    return tuple(_HOME.items())
