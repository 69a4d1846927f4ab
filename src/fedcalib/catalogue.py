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
    "Spending": "privacy.model",
    # queries
    "LabelHistogram": "queries.histogram",
    "LabelCounts": "queries.histogram",
    "TopLabelTable": "queries.reliability",
    "ClasswiseResiduals": "queries.reliability",
    "Hits": "queries.reliability",
    "Losses": "queries.reliability",
    "ScoreGaps": "queries.reliability",
    "ScoreHistogram": "queries.reliability",
    "TemperatureCurve": "queries.temperature",
    "TemperatureSlope": "queries.temperature",
    "TemperatureScores": "queries.temperature_scores",
    "Clipped": "queries.clipped",
    "NormHistogram": "queries.clipped",
    "ScoreTree": "queries.score_tree",
    "ScoreLeaves": "queries.score_tree",
    "LogitResiduals": "queries.residual",
    "ClassCurvature": "queries.class_curvature",
    "Calibrated": "queries.calibrated",
    "ScalingGradient": "queries.scaling_gradient",
    "ClassCounts": "methods.class_shares",
    "OwnErrors": "queries.own_errors",
    "LocalFit": "queries.local_fit",
    "TemperatureFamily": "families.affine",
    "VectorFamily": "families.affine",
    "MatrixFamily": "families.affine",
    "OrderPreservingVectorFamily": "families.order_preserving",
    "OrderPreservingNetworkFamily": "families.order_preserving",
    "ConfidenceGaps": "queries.shift",
    "ClippedLosses": "queries.shift",
    "BinnedGaps": "queries.shift",
    "RightWrong": "queries.shift",
    "Confidence": "queries.confidence",
    "Predictions": "queries.confidence",
    "ConfusionCounts": "queries.confidence",
    "DomainGaps": "methods.domain_temperatures",
    "ScoreBuckets": "queries.score_buckets",
    "PairedBuckets": "queries.score_buckets",
    "LocalUpdate": "queries.local_update",
    "LocalTraining": "training.local",
    "SGD": "training.local",
    "Adam": "training.local",
    "SoftmaxRegression": "training.softmax_regression",
    "ConvNet": "training.torch_networks",
    "LeNet5": "training.torch_networks",
    "ResNet18": "training.torch_networks",
    "CharLSTM": "training.torch_networks",
    "OwnNetwork": "training.torch_networks",
    "UnitHead": "training.unit_head",
    "ClassMoments": "queries.moments",
    "LocalPosterior": "queries.local_posterior",
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
    "Cell": "privacy.symbols",
    "SignedCell": "privacy.symbols",
    "Coordinate": "privacy.symbols",
    "Unary": "privacy.encoders",
    "RandomSymbol": "privacy.encoders",
    "FlippedSign": "privacy.encoders",
    # privacy models
    "Open": "privacy.open",
    "SecAgg": "privacy.secagg",
    "DistributedDP": "privacy.distributed",
    "LocalDP": "privacy.local",
    "SourceLaplace": "privacy.source_laplace",
    "UserGaussian": "privacy.user_gaussian",
    # methods
    "Together": "methods.together",
    "FedBin": "methods.fed_bin",
    "FedBBQ": "methods.fed_bbq",
    "FedTemp": "methods.fed_scaling",
    "FedVector": "methods.fed_scaling",
    "FedMatrix": "methods.fed_scaling",
    "FedOPVector": "methods.fed_scaling",
    "FedCal": "methods.fed_scaling",
    "ResidualBinning": "methods.residual_binning",
    "ClassShifts": "methods.class_shifts",
    "ClassWise": "methods.residual_binning",
    "Pooled": "methods.residual_binning",
    "TwoLevel": "methods.residual_binning",
    "RidgeVector": "methods.gradient_scaling",
    "RidgeOPVector": "methods.gradient_scaling",
    "Pipeline": "methods.pipeline",
    "Auto": "methods.auto",
    "ClassShares": "methods.class_shares",
    "EvenLogOdds": "axes",
    "EvenProbability": "axes",
    "ByOdds": "normalisers",
    "ByScale": "normalisers",
    "Unweighted": "methods.weighting",
    "Doubting": "methods.weighting",
    "Weighted": "methods.weighting",
    "OneShotTemperature": "methods.one_shot_temperature",
    "BoundedTemperature": "methods.bounded_temperature",
    "Averaged": "methods.averaged",
    "FederatedMetrics": "methods.federated_metrics",
    "PerClientECE": "methods.per_client_ece",
    "PlattScaling": "methods.platt",
    "AccT": "methods.acc_t",
    "NLLT": "methods.nll_t",
    "ECET": "methods.ece_t",
    "SourceBinning": "methods.source_binning",
    "CBPE": "methods.cbpe",
    "BBSE": "methods.bbse",
    "ConfusionOf": "methods.bbse",
    "DomainTemperatures": "methods.domain_temperatures",
    "ReviewWindow": "methods.review_window",
    "GoldenSection": "flows.search",
    "GridSearch": "flows.search",
    "OnMagnitude": "flows.search",
    "Bisection": "flows.search",
    "Interpolation": "flows.search",
    "ScoreCurves": "methods.score_curves",
    "QuantileBinning": "methods.quantile_binning",
    "IsotonicBuckets": "methods.isotonic_buckets",
    "BinaryBBQ": "methods.binary_bbq",
    "BetaScaling": "methods.beta_scaling",
    "CompareModels": "methods.compare_models",
    "FedAvg": "methods.fed_avg",
    "CCVR": "methods.ccvr",
    "FeatureGaussians": "methods.ccvr",
    "Retrained": "methods.ccvr",
    "ClosedForm": "methods.ccvr",
    "FLSWAG": "methods.fl_swag",
    "FitAndMeasure": "methods.fit_and_measure",
    # artifacts
    "Fitted": "artifacts.fitted",
    "Trained": "artifacts.trained",
    "Ensemble": "artifacts.ensemble",
    "Head": "artifacts.head",
    "Representation": "artifacts.head",
    "ClassGaussians": "artifacts.gaussians",
    "WeightPosterior": "artifacts.weight_posterior",
    "TopLabelSteps": "artifacts.top_label",
    "Confusion": "artifacts.confusion",
    "TemperatureByDomain": "artifacts.by_domain",
    "Mixture": "artifacts.mixture",
    "Review": "artifacts.review",
    "Identity": "artifacts.calibrator",
    "Steps": "artifacts.steps",
    "Blend": "artifacts.blend",
    "Chain": "artifacts.chain",
    "KeepTop": "artifacts.guard",
    "LogitOffsets": "artifacts.logit_offsets",
    "LogitShifts": "artifacts.logit_shifts",
    "LabelShift": "artifacts.label_shift",
    "LabelShares": "artifacts.label_shift",
    "VectorScaling": "artifacts.scaling",
    "MatrixScaling": "artifacts.scaling",
    "OrderPreservingVector": "artifacts.order_preserving",
    "OrderPreservingNetwork": "artifacts.order_preserving",
    "Temperature": "artifacts.scaling",
    "MetricsReport": "artifacts.metrics_report",
    "ClientErrors": "artifacts.client_errors",
    "Measured": "measured",
    "Reliability": "metrics.reliability",
    "Platt": "artifacts.platt",
    "Beta": "artifacts.platt",
    "Curves": "artifacts.score_curves",
    "ScoreTable": "metrics.score_table",
    "EdgeSteps": "artifacts.edges",
    "Comparison": "artifacts.comparison",
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
