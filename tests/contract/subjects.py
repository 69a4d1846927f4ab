"""The axes of the product: every method, model and runtime that the contract holds to its word.

To add a method, a model or a runtime, add one line here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType

import numpy as np

import fedcalib as fc
from fedcalib import wire
from fedcalib.artifacts.evaluation import Confusion
from fedcalib.artifacts.networks import Representation
from fedcalib.artifacts.scaling import MatrixScaling, Temperature
from fedcalib.loop import Runtime
from fedcalib.methods.ccvr import ClosedForm, Retrained
from fedcalib.methods.compare_models import ReviewWindow
from fedcalib.queries.reliability import ClasswiseResiduals, Hits, Losses, ScoreHistogram, TopLabelTable
from fedcalib.query import Query
from fedcalib.training import SoftmaxRegression
from tests.remote.places import remote

# turns a certain, wrong record into a certain, right one, so that changes attain their bounds
ROTATED = MatrixScaling(
    ((0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0), (1.0, 0.0, 0.0, 0.0)), (0.0, 0.0, 0.0, 0.0)
)

METHODS: list[fc.Method] = [
    fc.FedBin(),
    fc.FedBin(bins=8, rounds=3, smoothing=0.0),
    fc.FedBin(weighting=fc.methods.Weighted()),
    fc.FedBin(bins=8, clip=(2.0, 5.0)),
    fc.FedBBQ(),
    fc.FedBBQ(finest=4, weighting=fc.methods.Weighted(changed_only=True)),
    fc.FedBBQ(finest=4, axis=fc.methods.EvenLogOdds(), normaliser=fc.methods.ByOdds()),
    fc.FedTemp(rounds=2),
    fc.FedTemp(rounds=2, logarithm=True),
    fc.FedVector(rounds=2),
    fc.FedMatrix(rounds=2),
    fc.FedOPVector(rounds=2),
    fc.FedCal(rounds=2, hidden=8),
    fc.OneShotTemperature(),
    fc.OneShotTemperature(refinements=2),
    fc.BoundedTemperature(),
    fc.methods.MonotoneTemperature(),
    fc.methods.ResidualBinning(),
    fc.methods.ClassShifts(),
    fc.methods.ResidualBinning(sharing=fc.methods.Pooled()),
    fc.methods.ResidualBinning(sharing=fc.methods.TwoLevel()),
    fc.methods.RidgeVector(rounds=3),
    fc.methods.RidgeOPVector(rounds=2),
    fc.methods.Pipeline((fc.OneShotTemperature(), fc.FedBin(bins=4)), guard=True),
    fc.Auto(),
    fc.methods.Averaged((fc.OneShotTemperature(), fc.methods.ClassShifts())),
    fc.Auto(epsilon=900.0),
    fc.Auto(epsilon=900.0, typical_records=None),
    fc.methods.ClassShares(),
    fc.FederatedMetrics(),
    fc.FederatedMetrics(scores=(0.1, 0.5, 0.9), threshold=0.2),
    fc.FederatedMetrics(epsilon=5.0, alone="record", records=20_000),
    fc.methods.PairedMetrics(calibrator=Temperature(1.5)),
    fc.methods.ClassMetrics(),
    fc.methods.ClassMetrics(bins=100, class_auc=False),
    fc.methods.ClassMetrics(epsilon=1.0, class_auc=True),
    fc.methods.PairedClassMetrics(ROTATED),
    fc.methods.PairedClassMetrics(ROTATED, fc.methods.ClassMetrics(epsilon=1.0)),
    fc.PerClientECE(),
    fc.methods.Together((fc.FedBin(), fc.AccT(search=fc.search.Bisection(2)), fc.methods.SourceBinning())),
    fc.AccT(),
    fc.AccT(search=fc.search.Bisection(3)),
    fc.AccT(search=fc.search.OnMagnitude()),
    fc.methods.NLLT(),
    fc.methods.ECET(),
    fc.methods.ECET(search=fc.search.GridSearch(places=8, kept=1, zooms=1)),
    fc.methods.SourceBinning(),
    fc.methods.CBPE(),
    fc.methods.ConfusionOf(),
    fc.BBSE(Confusion(((50.0, 10.0), (5.0, 40.0)), 2.0)),
    ReviewWindow(Temperature(1.5), fc.OneShotTemperature()),
    fc.methods.AveragedCurve(),
    fc.methods.AveragedCurve(epsilon=1.0, unit="client"),
    fc.methods.AveragedCurve(epsilon=1.0, alone="record"),
    fc.PlattScaling(cells=8),
    fc.ScoreCurves(fc.methods.ScoreTree(4, 2)),
    fc.ScoreCurves(fc.methods.ScoreTree(2, 3), buckets=4, recount=0.7),
    fc.QuantileBinning(tree=fc.methods.ScoreTree(4, 2)),
    fc.IsotonicBuckets(tree=fc.methods.ScoreTree(4, 2)),
    fc.BinaryBBQ(levels=3, tree=fc.methods.ScoreTree(4, 2)),
    fc.methods.BetaScaling(tree=fc.methods.ScoreTree(4, 2)),
    fc.methods.BetaScaling(),
    fc.methods.FedAvg(SoftmaxRegression(4, 4), rounds=2, column=None),
    fc.methods.FedAvg(SoftmaxRegression(2, 2), rounds=1, largest=50, column=None),
    fc.methods.CCVR(fit=Retrained(samples=20, epochs=2), representation=Representation(column=None)),
    fc.methods.CCVR(fit=ClosedForm(), diagonal=True, representation=Representation(column=None)),
    fc.methods.FeatureGaussians(radius=5.0, representation=Representation(column=None)),
    fc.methods.FLSWAG(SoftmaxRegression(4, 4), prior=1.0, most=0.5, reach=0.1, samples=2, column=None),
]

MODELS: list[fc.privacy.Privacy] = [
    fc.Open(),
    fc.SecAgg(),
    fc.DistributedDP(epsilon=1.0),
    fc.DistributedDP(epsilon=1.0, delta=1e-5),
    fc.LocalDP(epsilon=4.0),
    fc.UserGaussian(epsilon=1.0, delta=1e-5),
    fc.UserGaussian(epsilon=1.0, delta=1e-5, clip=20.0),
    fc.SourceLaplace(epsilon=1.0),
]

RUNTIMES: list[Callable[[fc.Federation], Runtime]] = [
    fc.InProcess,
    remote,
]

SCHEMAS = [fc.Schema(classes=2, clients=5), fc.Schema(classes=4, clients=5)]


def name(subject: object) -> str:
    """Name a subject in a test's id."""
    return subject.__name__ if isinstance(subject, type | FunctionType) else repr(subject)


def planned_queries() -> Iterator[tuple[str, Query]]:
    """Every query that some method plans, once for each shape of data, of its answer and of what it wraps."""
    seen = set()
    for method in METHODS:
        for schema in SCHEMAS:
            try:
                plan = fc.method.Plan.of(method, schema)
            except fc.errors.InputError:  # a binary method says so when it meets four classes
                continue
            for query in plan.queries:
                key = (
                    schema,
                    *kinds(query),
                    *((name, block.shape, block.bound) for name, block in query.blocks.items()),
                )
                if key not in seen:
                    seen.add(key)
                    yield f"{type(query).__name__}-{schema.classes}-{sorted(query.blocks)}-{len(seen)}", query
    # what no method asks any more, but stored transcripts hold
    old = (Hits(), Losses(6.0), TopLabelTable(15), ClasswiseResiduals(4, 15), ScoreHistogram(15))
    for query, classes in zip(old, (4, 4, 4, 4, 2), strict=True):
        yield f"{type(query).__name__}-{classes}-{sorted(query.blocks)}-old", query


def kinds(query: Query) -> list[str]:
    """Name the types that a query is made of: itself, those that it puts together or wraps, what it trains."""
    return re.findall(r'"type":"(\w+)"', wire.dumps(query))


@cache
def federation(classes: int, clients: int = 5, records: int = 400, seed: int = 0) -> fc.Federation:
    """Over-confident logits of correlated labels, unevenly spread over clients; nobody changes what is shared."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=records)
    logits = rng.normal(size=(records, classes)) * 2
    logits[np.arange(records), labels] += 2.5
    data = fc.Records.of_logits(2 * logits, labels)
    return fc.Federation.dirichlet(data, clients, 1.0, seed)
