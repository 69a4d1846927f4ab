"""The one list of what has a public name, a word on the command line, or may cross the wire.

A row names a thing and the module that defines it; nothing is imported before it is used. `fedcalib.NAME`, the words of
--method and --privacy, and decoding all read these rows. The list is explicit, because registries filled at import time
are empty in a worker process.

A package of yours adds rows through an entry point of the group `fedcalib.methods` that names a sequence of them. They
are read when a word is not known here, and to list methods. A site decodes their types only where its policy names
them; code never travels.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Literal, final

from fedcalib.display import meant
from fedcalib.errors import InputError, WireError, needs

GROUP: Final = "fedcalib.methods"

Kind = Literal["method", "privacy", "option", "mechanism", "query", "artifact", "type", "function", "module"]


@final
@dataclass(frozen=True)
class Registered:
    """One row of the registry.

    Parameters
    ----------
    name
        The name of the class or function. Of what crosses the wire or is saved, it is the file format.
    module
        The module that defines it; a leading dot stands for this package.
    kind
        What it is. Methods and privacy models with a `word` can be chosen on the command line.
    public
        The public module that shows it: "fc" for `fedcalib` itself, "fc.query" for `fedcalib.query`; empty for none.
    word
        Its word on the command line, if it has one.
    wire
        Whether it may be decoded from files, and from messages if it is no method and no part of a mechanism: sites
        derive mechanisms themselves.

    Examples
    --------
    >>> row = Registered("FedBin", ".methods.fed_bin", "method", word="fed-bin")
    >>> row.build({"bins": 8}).bins
    8
    """

    name: str
    module: str
    kind: Kind
    public: str = ""
    word: str = ""
    wire: bool = True

    def load(self) -> Any:
        """Import it."""
        with needs(f"use {self.name}"):
            module = import_module(self.module, "fedcalib")
        return module if self.kind == "module" else getattr(module, self.name)

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.load().__doc__ or "").split("\n", 1)[0]

    @property
    def options(self) -> dict[str, Any]:
        """Its options with their defaults; None where one has to be given."""
        return {field.name: None if field.default is MISSING else field.default for field in fields(self.load())}

    def build(self, options: Mapping[str, Any]) -> Any:
        """Make one from the options that were given."""
        cls, word = self.load(), self.word or kebab(self.name)
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                listed = ", ".join(known) or "it has none"
                raise InputError(f"Expected options of {word} ({listed}), found '{name}'.{meant(name, known)}")
        required = [field.name for field in fields(cls) if field.default is MISSING and field.name not in options]
        if required:
            raise InputError(f"Expected --{required[0].replace('_', '-')} with {word}, found none; state it.")
        return cls(**options)


MODULES: Final = """
artifacts audit cohort data datasets errors method methods metrics planning privacy query registry runtimes search
training workflows
"""

ROWS: Final = (
    # methods: those with a word fit a calibrator from labelled records, and --method names them
    Registered("FedBin", ".methods.fed_bin", "method", "fc", "fed-bin"),
    Registered("FedBBQ", ".methods.fed_bbq", "method", "fc", "fed-bbq"),
    Registered("FedTemp", ".methods.fed_scaling", "method", "fc", "fed-temp"),
    Registered("FedVector", ".methods.fed_scaling", "method", "fc", "fed-vector"),
    Registered("FedMatrix", ".methods.fed_scaling", "method", "fc", "fed-matrix"),
    Registered("FedOPVector", ".methods.fed_scaling", "method", "fc", "fed-op-vector"),
    Registered("FedCal", ".methods.fed_scaling", "method", "fc", "fed-cal"),
    Registered("OneShotTemperature", ".methods.temperature", "method", "fc", "one-shot-temperature"),
    Registered("BoundedTemperature", ".methods.temperature", "method", "fc", "bounded-temperature"),
    Registered("MonotoneTemperature", ".methods.temperature", "method", "fc.methods", "monotone-temperature"),
    Registered("RidgeOPVector", ".methods.ridge_scaling", "method", "fc.methods", "ridge-op-vector"),
    Registered("RidgeVector", ".methods.ridge_scaling", "method", "fc.methods", "ridge-vector"),
    Registered("ResidualBinning", ".methods.residual_binning", "method", "fc.methods", "residual-binning"),
    Registered("ClassShifts", ".methods.residual_binning", "method", "fc.methods", "class-shifts"),
    Registered("Auto", ".methods.auto", "method", "fc", "auto"),
    Registered("AveragedCurve", ".methods.averaged_curve", "method", "fc.methods", "averaged-curve"),
    Registered("PlattScaling", ".methods.platt", "method", "fc", "platt-scaling"),
    Registered("BetaScaling", ".methods.platt", "method", "fc.methods", "beta-scaling"),
    Registered("QuantileBinning", ".methods.score_binning", "method", "fc", "quantile-binning"),
    Registered("IsotonicBuckets", ".methods.score_binning", "method", "fc", "isotonic-buckets"),
    Registered("BinaryBBQ", ".methods.score_binning", "method", "fc", "binary-bbq"),
    Registered("AccT", ".methods.domain_shift", "method", "fc", "acc-t"),
    Registered("NLLT", ".methods.domain_shift", "method", "fc.methods", "nll-t"),
    Registered("ECET", ".methods.domain_shift", "method", "fc.methods", "ece-t"),
    Registered("SourceBinning", ".methods.domain_shift", "method", "fc.methods", "source-binning"),
    Registered("Together", ".methods.compose", "method", "fc.methods"),
    Registered("Pipeline", ".methods.compose", "method", "fc.methods"),
    Registered("ClassShares", ".methods.bbse", "method", "fc.methods"),
    Registered("Averaged", ".methods.compose", "method", "fc.methods"),
    Registered("FederatedMetrics", ".methods.evaluation", "method", "fc"),
    Registered("ClassMetrics", ".methods.class_evaluation", "method", "fc.methods"),
    Registered("PairedClassMetrics", ".methods.class_evaluation", "method", "fc.methods"),
    Registered("PerClientECE", ".methods.evaluation", "method", "fc"),
    Registered("GroupedMetrics", ".methods.paired_evaluation", "method", "fc.methods"),
    Registered("PairedMetrics", ".methods.paired_evaluation", "method", "fc.methods"),
    Registered("CBPE", ".methods.bbse", "method", "fc.methods"),
    Registered("BBSE", ".methods.bbse", "method", "fc"),
    Registered("ConfusionOf", ".methods.bbse", "method", "fc.methods"),
    Registered("DomainTemperatures", ".methods.domain_shift", "method", "fc.methods"),
    Registered("ReviewWindow", ".methods.compare_models", "method"),
    Registered("ScoreCurves", ".methods.evaluation", "method", "fc"),
    Registered("CompareModels", ".methods.compare_models", "method", "fc"),
    Registered("FedAvg", ".methods.fed_avg", "method", "fc.methods"),
    Registered("TrainingRound", ".methods.fed_avg", "type", "fc.methods", wire=False),
    Registered("CCVR", ".methods.ccvr", "method", "fc.methods"),
    Registered("FeatureGaussians", ".methods.ccvr", "method", "fc.methods"),
    Registered("FLSWAG", ".methods.fl_swag", "method", "fc.methods"),
    Registered("FitAndMeasure", ".methods.compose", "method", "fc.methods"),
    # options of methods, mechanisms and runs
    Registered("Everyone", ".cohort", "option", "fc"),
    Registered("Poisson", ".cohort", "option", "fc"),
    Registered("Disjoint", ".cohort", "option", "fc"),
    Registered("TemperatureFamily", ".families.affine", "option"),
    Registered("VectorFamily", ".families.affine", "option"),
    Registered("MatrixFamily", ".families.affine", "option"),
    Registered("OrderPreservingVectorFamily", ".families.order_preserving", "option"),
    Registered("OrderPreservingNetworkFamily", ".families.order_preserving", "option"),
    Registered("LocalTraining", ".training.network", "option", "fc.training"),
    Registered("SGD", ".training.network", "option", "fc.training"),
    Registered("Adam", ".training.network", "option", "fc.training"),
    Registered("SoftmaxRegression", ".training.network", "option", "fc.training"),
    Registered("ConvNet", ".training.torch_networks", "option", "fc.training"),
    Registered("LeNet5", ".training.torch_networks", "option", "fc.training"),
    Registered("ResNet18", ".training.torch_networks", "option", "fc.training"),
    Registered("CharLSTM", ".training.torch_networks", "option", "fc.training"),
    Registered("OwnNetwork", ".training.torch_networks", "option", "fc.training"),
    Registered("UnitHead", ".training.torch_networks", "option", "fc.training"),
    Registered("Trajectory", ".training.posterior", "option"),
    Registered("Curvature", ".training.posterior", "option"),
    Registered("Coder", ".privacy.local", "option"),
    Registered("Cell", ".privacy.local_reports", "option"),
    Registered("SignedCell", ".privacy.local_reports", "option"),
    Registered("Coordinate", ".privacy.local_reports", "option"),
    Registered("Unary", ".privacy.local_reports", "option"),
    Registered("RandomSymbol", ".privacy.local_reports", "option"),
    Registered("FlippedSign", ".privacy.local_reports", "option"),
    Registered("ClassWise", ".methods.residual_binning", "option", "fc.methods"),
    Registered("Pooled", ".methods.residual_binning", "option", "fc.methods"),
    Registered("TwoLevel", ".methods.residual_binning", "option", "fc.methods"),
    Registered("EvenLogOdds", ".metrics.binning", "option", "fc.methods"),
    Registered("EvenProbability", ".metrics.binning", "option", "fc.methods"),
    Registered("CutLogOdds", ".metrics.binning", "option", "fc.methods"),
    Registered("ListedScores", ".metrics.binning", "option", "fc.methods"),
    Registered("StretchedLogOdds", ".metrics.binning", "option", "fc.methods"),
    Registered("ByOdds", ".artifacts.steps", "option", "fc.methods"),
    Registered("ByScale", ".artifacts.steps", "option", "fc.methods"),
    Registered("Unweighted", ".flows.tables", "option", "fc.methods"),
    Registered("Doubting", ".flows.tables", "option", "fc.methods"),
    Registered("Weighted", ".flows.tables", "option", "fc.methods"),
    Registered("GoldenSection", ".search", "option", "fc.search"),
    Registered("GridSearch", ".search", "option", "fc.search"),
    Registered("OnMagnitude", ".search", "option", "fc.search"),
    Registered("Bisection", ".search", "option", "fc.search"),
    Registered("Interpolation", ".search", "option", "fc.search"),
    Registered("Retrained", ".methods.ccvr", "option", "fc.methods"),
    Registered("ClosedForm", ".methods.ccvr", "option", "fc.methods"),
    # privacy models, which --privacy names
    Registered("Open", ".privacy.open", "privacy", "fc", "open"),
    Registered("SecAgg", ".privacy.secagg", "privacy", "fc", "secagg"),
    Registered("DistributedDP", ".privacy.distributed", "privacy", "fc", "distributed"),
    Registered("LocalDP", ".privacy.local", "privacy", "fc", "local"),
    Registered("UserGaussian", ".privacy.user_gaussian", "privacy", "fc", "user"),
    Registered("SourceLaplace", ".privacy.source_laplace", "privacy", "fc", "laplace"),
    # mechanisms
    Registered("Exact", ".privacy.open", "mechanism"),
    Registered("FixedPoint", ".privacy.secagg", "mechanism"),
    Registered("PolyaShares", ".privacy.distributed", "mechanism"),
    Registered("GaussianShares", ".privacy.distributed", "mechanism"),
    Registered("ClippedGaussian", ".privacy.user_gaussian", "mechanism"),
    Registered("LaplaceTerms", ".privacy.source_laplace", "mechanism"),
    Registered("RandomisedReports", ".privacy.local", "mechanism"),
    # queries
    Registered("LabelHistogram", ".queries.class_tables", "query"),
    Registered("LabelCounts", ".queries.class_tables", "query"),
    Registered("TopLabelTable", ".queries.reliability", "query"),
    Registered("ClasswiseResiduals", ".queries.reliability", "query"),
    Registered("Hits", ".queries.reliability", "query"),
    Registered("PairedGains", ".queries.reliability", "query"),
    Registered("PairedHits", ".queries.reliability", "query"),
    Registered("Losses", ".queries.reliability", "query"),
    Registered("ScoreGaps", ".queries.reliability", "query"),
    Registered("ScoreHistogram", ".queries.reliability", "query"),
    Registered("TopLabelOutcomes", ".queries.class_outcomes", "query"),
    Registered("TopLabelGaps", ".queries.class_outcomes", "query"),
    Registered("ClassOutcomes", ".queries.class_outcomes", "query"),
    Registered("ConfusionTable", ".queries.class_outcomes", "query"),
    Registered("ClassResiduals", ".queries.class_outcomes", "query"),
    Registered("ResidualSquares", ".queries.class_outcomes", "query"),
    Registered("ResidualProducts", ".queries.class_outcomes", "query"),
    Registered("CutLosses", ".queries.class_outcomes", "query"),
    Registered("WholeLosses", ".queries.class_outcomes", "query"),
    Registered("LossChanges", ".queries.class_outcomes", "query"),
    Registered("GapProducts", ".queries.class_outcomes", "query"),
    Registered("TemperatureCurve", ".queries.temperature", "query"),
    Registered("TemperatureSlope", ".queries.temperature", "query"),
    Registered("TemperatureScores", ".queries.temperature", "query"),
    Registered("Clipped", ".queries.wrapped", "query"),
    Registered("NormHistogram", ".queries.wrapped", "query"),
    Registered("ScoreTree", ".queries.scores", "query", "fc.methods"),
    Registered("ScoreLeaves", ".queries.scores", "query"),
    Registered("ScoreCells", ".queries.scores", "query"),
    Registered("ScoreSums", ".queries.scores", "query"),
    Registered("OddsCells", ".methods.platt", "query"),
    Registered("GradientSteps", ".queries.temperature", "query"),
    Registered("EndLabels", ".queries.score_residuals", "query"),
    Registered("ScoreResiduals", ".queries.score_residuals", "query"),
    Registered("PairedCells", ".queries.scores", "query"),
    Registered("LogitResiduals", ".queries.class_tables", "query"),
    Registered("ClassCurvature", ".queries.class_tables", "query"),
    Registered("Calibrated", ".queries.wrapped", "query"),
    Registered("ByGroup", ".queries.wrapped", "query"),
    Registered("ScalingGradient", ".queries.scaling", "query"),
    Registered("ClassCounts", ".methods.bbse", "query"),
    Registered("OwnErrors", ".queries.reliability", "query"),
    Registered("LocalFit", ".queries.scaling", "query"),
    Registered("ConfidenceGaps", ".queries.shift", "query"),
    Registered("ClippedLosses", ".queries.shift", "query"),
    Registered("BinnedGaps", ".queries.shift", "query"),
    Registered("RightWrong", ".queries.shift", "query"),
    Registered("Confidence", ".queries.shift", "query"),
    Registered("Predictions", ".queries.shift", "query"),
    Registered("ConfusionCounts", ".queries.shift", "query"),
    Registered("DomainGaps", ".methods.domain_shift", "query"),
    Registered("ScoreBuckets", ".queries.scores", "query"),
    Registered("PairedBuckets", ".queries.scores", "query"),
    Registered("LocalUpdate", ".queries.training", "query"),
    Registered("ClassMoments", ".queries.moments", "query"),
    Registered("LocalPosterior", ".queries.training", "query"),
    # artifacts and their parts
    Registered("Fitted", ".artifacts.evaluation", "artifact", "fc.artifacts"),
    Registered("Trained", ".artifacts.networks", "artifact", "fc.artifacts"),
    Registered("Ensemble", ".artifacts.networks", "artifact", "fc.artifacts"),
    Registered("Head", ".artifacts.networks", "artifact", "fc.artifacts"),
    Registered("Representation", ".artifacts.networks", "artifact", "fc.artifacts"),
    Registered("ClassGaussians", ".artifacts.gaussians", "artifact", "fc.artifacts"),
    Registered("WeightPosterior", ".artifacts.gaussians", "artifact", "fc.artifacts"),
    Registered("TopLabelSteps", ".artifacts.steps", "artifact", "fc.artifacts"),
    Registered("Confusion", ".artifacts.evaluation", "artifact", "fc.artifacts"),
    Registered("TemperatureByDomain", ".artifacts.scaling", "artifact", "fc.artifacts"),
    Registered("Mixture", ".artifacts.calibrator", "artifact", "fc.artifacts"),
    Registered("Review", ".artifacts.evaluation", "artifact", "fc.artifacts"),
    Registered("Identity", ".artifacts.calibrator", "artifact", "fc.artifacts"),
    Registered("Steps", ".artifacts.steps", "artifact", "fc.artifacts"),
    Registered("Blend", ".artifacts.steps", "artifact", "fc.artifacts"),
    Registered("Chain", ".artifacts.calibrator", "artifact", "fc.artifacts"),
    Registered("KeepTop", ".artifacts.calibrator", "artifact", "fc.artifacts"),
    Registered("LogitOffsets", ".artifacts.logit_shifts", "artifact", "fc.artifacts"),
    Registered("LogitShifts", ".artifacts.logit_shifts", "artifact", "fc.artifacts"),
    Registered("LabelShift", ".artifacts.logit_shifts", "artifact", "fc.artifacts"),
    Registered("LabelShares", ".artifacts.logit_shifts", "artifact", "fc.artifacts"),
    Registered("VectorScaling", ".artifacts.scaling", "artifact", "fc.artifacts"),
    Registered("MatrixScaling", ".artifacts.scaling", "artifact", "fc.artifacts"),
    Registered("OrderPreservingVector", ".artifacts.scaling", "artifact", "fc.artifacts"),
    Registered("OrderPreservingNetwork", ".artifacts.scaling", "artifact", "fc.artifacts"),
    Registered("Temperature", ".artifacts.scaling", "artifact", "fc.artifacts"),
    Registered("MetricsReport", ".artifacts.evaluation", "artifact", "fc.artifacts"),
    Registered("BinaryPerformance", ".artifacts.performance", "artifact", "fc.artifacts"),
    Registered("GroupedPerformance", ".artifacts.performance_parts", "artifact", "fc.artifacts"),
    Registered("PairedPerformance", ".artifacts.performance_parts", "artifact", "fc.artifacts"),
    Registered("ClassPerformance", ".artifacts.class_performance", "artifact", "fc.artifacts"),
    Registered("ClassRow", ".artifacts.class_performance", "artifact", "fc.artifacts"),
    Registered("ClientErrors", ".artifacts.evaluation", "artifact", "fc.artifacts"),
    Registered("Measured", ".metrics.intervals", "artifact", "fc.metrics"),
    Registered("Reliability", ".metrics.reliability", "artifact", "fc.metrics"),
    Registered("Platt", ".artifacts.scaling", "artifact", "fc.artifacts"),
    Registered("Beta", ".artifacts.scaling", "artifact", "fc.artifacts"),
    Registered("OddsCurve", ".artifacts.scaling", "artifact", "fc.artifacts"),
    Registered("Curves", ".artifacts.evaluation", "artifact", "fc.artifacts"),
    Registered("ScoreTable", ".estimation.score_table", "artifact"),
    Registered("EdgeSteps", ".artifacts.steps", "artifact", "fc.artifacts"),
    Registered("Comparison", ".artifacts.evaluation", "artifact", "fc.artifacts"),
    # vocabulary
    Registered("Bound", ".query", "type", "fc.query"),
    Registered("Block", ".query", "type", "fc.query"),
    Registered("Join", ".query", "type", "fc.query"),
    Registered("Cohort", ".cohort", "type", "fc.cohort"),
    Registered("Spending", ".accounting.spending", "type"),
    Registered("Answer", ".query", "type", "fc.query", wire=False),
    Registered("Audit", ".audit.evidence", "type", "fc.audit", wire=False),
    Registered("Budget", ".method", "type", "fc.method", wire=False),
    Registered("Calibrator", ".artifacts.calibrator", "type", "fc", wire=False),
    Registered("ClientQuery", ".query", "type", "fc.query", wire=False),
    Registered("Federation", ".federation", "type", "fc", wire=False),
    Registered("Flow", ".method", "type", "fc.method", wire=False),
    Registered("Flower", ".deploy.flower", "type", "fc", wire=False),
    Registered("InProcess", ".runtimes", "type", "fc", wire=False),
    Registered("Ledger", ".accounting.ledger", "type", "fc", wire=False),
    Registered("Mechanism", ".privacy", "type", "fc.privacy", wire=False),
    Registered("Method", ".method", "type", "fc", wire=False),
    Registered("Monitor", ".workflows.drift", "type", "fc", wire=False),
    Registered("Plan", ".method", "type", "fc.method", wire=False),
    Registered("Privacy", ".privacy", "type", "fc.privacy", wire=False),
    Registered("Query", ".query", "type", "fc.query", wire=False),
    Registered("RecordQuery", ".query", "type", "fc.query", wire=False),
    Registered("Records", ".records", "type", "fc", wire=False),
    Registered("Replay", ".runtimes", "type", "fc", wire=False),
    Registered("Result", ".loop", "type", "fc", wire=False),
    Registered("Rows", ".query", "type", "fc.query", wire=False),
    Registered("Runtime", ".loop", "type", "fc.runtimes", wire=False),
    Registered("Schema", ".records", "type", "fc", wire=False),
    Registered("ScoreModel", ".planning.simulation", "type", "fc.planning", wire=False),
    Registered("Secure", ".randomness", "type", "fc", wire=False),
    Registered("Simulated", ".randomness", "type", "fc", wire=False),
    Registered("Study", ".planning", "type", "fc.planning", wire=False),
    Registered("Transcript", ".transcript", "type", "fc", wire=False),
    Registered("Artifact", ".artifacts.saving", "type", "fc.artifacts", wire=False),
    Registered("Performance", ".artifacts.performance", "type", "fc.artifacts", wire=False),
    Registered("Participation", ".cohort", "type", "fc.cohort", wire=False),
    Registered("Registered", ".registry", "type", "fc.registry", wire=False),
    # functions
    Registered("calibrate", ".workflows.calibration", "function", "fc", wire=False),
    Registered("compare", ".workflows.comparison", "function", "fc", wire=False),
    Registered("evaluate", ".workflows.evaluation", "function", "fc", wire=False),
    Registered("monitor", ".workflows.monitoring", "function", "fc", wire=False),
    Registered("plan", ".workflows.planning", "function", "fc", wire=False),
    Registered("register", ".registry", "function", "fc.registry", wire=False),
    Registered("audit_mechanism", ".audit.mechanisms", "function", "fc.audit", wire=False),
    Registered("audit_model", ".audit.runs", "function", "fc.audit", wire=False),
    Registered("audit_outputs", ".audit.outputs", "function", "fc.audit", wire=False),
    Registered("audit_run", ".audit.runs", "function", "fc.audit", wire=False),
    Registered("load", ".artifacts.saving", "function", "fc", wire=False),
    Registered("read", ".data", "function", "fc", wire=False),
    Registered("run", ".runtimes", "function", "fc", wire=False),
    Registered("suited_tree", ".planning", "function", "fc.planning", wire=False),
    # public modules
    *(Registered(name, f".{name}", "module", "fc", wire=False) for name in MODULES.split()),
)

_BY_NAME: Final = {row.name: row for row in ROWS}
_LOCAL: Final[dict[str, type]] = {}


def kebab(name: str) -> str:
    """Spell a class's name as a word of the command line: FedBBQ is fed-bbq."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


@cache
def installed() -> tuple[Registered, ...]:
    """Rows of other installed packages, from their entry points.

    Raises
    ------
    InputError
        If a package's rows cannot be read, or take a name or word that this package uses.
    """
    from importlib.metadata import entry_points

    rows: list[Registered] = []
    for point in entry_points(group=GROUP):
        try:
            rows += point.load()
        except Exception as error:
            raise InputError(
                f"Expected rows of methods from {point.value}, found {type(error).__name__}: {error}; "
                "update or remove the package that brings it."
            ) from error
    words = {row.word for row in ROWS if row.word}
    for row in rows:
        if not isinstance(row, Registered) or row.name in _BY_NAME or row.word in words:
            raise InputError(f"Expected rows with names and words of their own in the group {GROUP}, found {row}.")
    return tuple(rows)


def choices(kind: Kind) -> tuple[Registered, ...]:
    """Methods or privacy models that a word on the command line can name, other packages' last."""
    return tuple(row for row in (*ROWS, *installed()) if row.kind == kind and row.word)


def find(kind: Kind, word: str) -> Registered | None:
    """The method or privacy model with this word; a method without a word goes by its name, such as score-curves."""

    def matches(row: Registered) -> bool:
        return row.kind == kind and (row.word or kebab(row.name)) == word

    return next(filter(matches, ROWS), None) or next(filter(matches, installed()), None)


def method(word: str | None, options: Mapping[str, Any], settings: Sequence[str] = ()) -> Any:
    """Make the calibration method that a word names; settings are written as name=value."""
    row = _chosen("method", word)
    given = {name: value for name, value in options.items() if value is not None}
    return row.build({**given, **_settings(row, settings)})


def privacy(word: str | None, options: Mapping[str, Any]) -> Any:
    """Make the privacy model that a word names."""
    row = _chosen("privacy", word)
    return row.build({name: value for name, value in options.items() if value is not None})


def takes(word: str | None, option: str) -> bool:
    """Whether a privacy model has an option of its own."""
    row = find("privacy", word or "")
    return row is not None and option in row.options


def _chosen(kind: Kind, word: str | None) -> Registered:
    row = find(kind, word or "")
    if row is None or not row.word:
        words = [choice.word for choice in choices(kind)]
        hint = meant(word or "", words)
        expected = "a known name (`fedcalib methods` explains each)" if hint else f"one of {', '.join(words)}"
        raise InputError(f"Expected --{kind} with {expected}, found {word or 'none'}.{hint}")
    return row


def _settings(row: Registered, settings: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    plain = {key: value for key, value in row.options.items() if isinstance(value, bool | int | float | str)}
    for setting in settings:
        name, sign, text = setting.partition("=")
        if not sign or name not in plain:
            names = ", ".join(plain)
            raise InputError(f"Expected --set NAME=VALUE with one of {names}, found '{setting}'.")
        values[name] = _value(text, plain[name], setting)
    return values


def _value(text: str, default: Any, setting: str) -> Any:
    """Read a value as the kind that its default is."""
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        return text if isinstance(default, str) else int(text) if isinstance(default, int) else float(text)
    except (ValueError, KeyError) as error:
        raise InputError(f"Expected a value like {default!r}, found --set {setting}.") from error


def lookup(name: str, allowed: Collection[str] | None = ()) -> type:
    """Find a type that may be decoded.

    Parameters
    ----------
    name
        The name of its class.
    allowed
        Which types of other installed packages may be found beside this package's own; None for all of them.
    """
    if name in _LOCAL:
        return _LOCAL[name]
    row = _BY_NAME.get(name)
    if row is None and (allowed is None or name in allowed):
        row = next((other for other in installed() if other.name == name), None)
    if row is None or not row.wire:
        raise WireError(f"Expected a registered type, found {name[:80]!r}; is this version older than the sender's?")
    found: type = row.load()
    return found


def register(cls: type) -> type:
    """Let this process decode a type of your own; usable as a decorator."""
    if cls.__name__ in _BY_NAME:
        raise WireError(f"Expected a new name, found {cls.__name__}, which is registered already.")
    _LOCAL[cls.__name__] = cls
    return cls


def names(*kinds: Kind) -> tuple[str, ...]:
    """Names of all types that may be decoded, or of those of some kinds."""
    own = tuple(row.name for row in ROWS if row.wire and (not kinds or row.kind in kinds))
    return own if kinds else (*own, *_LOCAL)


def lazily(module: str, homes: Mapping[str, Collection[str]]) -> Callable[[str], Any]:
    """`__getattr__` of a package whose names, and whose modules, are imported when they are first used.

    Parameters
    ----------
    module
        The name of the package.
    homes
        The names that each of its modules defines.
    """
    where = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in where and (name.startswith("_") or find_spec(f"{module}.{name}") is None):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        found = import_module(f"{module}.{where.get(name, name)}")
        value = getattr(found, name) if name in where else found
        setattr(sys.modules[module], name, value)
        return value

    return get


def exports(module: str) -> tuple[Callable[[str], Any], list[str], Callable[[], list[str]]]:
    """`__getattr__`, `__all__` and `__dir__` of a public module, whose names are imported when they are first used."""
    place = module.replace("fedcalib", "fc", 1)
    rows = {row.name: row for row in ROWS if row.public == place}

    def get(name: str) -> Any:
        if name not in rows:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = rows[name].load()
        setattr(sys.modules[module], name, value)
        return value

    shown = sorted(name for name, row in rows.items() if row.kind != "module")
    return get, shown, lambda: sorted({*rows, *vars(sys.modules[module])})
